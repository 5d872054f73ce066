def tree_broadcast(tensor):
    have, lack = [0], list(range(1, dist.get_world_size()))
    while lack:
        new = []
        for giver in list(have):
            if lack:
                taker = lack.pop(0)
                new.append(taker)
                if dist.get_rank() == giver:
                    dist.send(tensor, taker)
                if dist.get_rank() == taker:
                    dist.recv(tensor, giver)
        have += new


def tree_seconds(world_size, nbytes, alpha, beta):
    rounds, reached = 0, 1
    while reached < world_size:
        rounds, reached = rounds + 1, reached * 2
    return rounds * (alpha + nbytes * beta) + rounds * (alpha + nbytes * beta)
