def broadcast(tensor, src):
    def give(ranks):
        if len(ranks) == 1:
            return
        half = (len(ranks) + 1) // 2
        head, other = ranks[0], ranks[half]
        if dist.get_rank() == head:
            dist.send(tensor, other)
        elif dist.get_rank() == other:
            dist.recv(tensor, head)
        give(ranks[:half] if dist.get_rank() in ranks[:half] else ranks[half:])

    p = dist.get_world_size()
    give([src, *(rank for rank in range(p) if rank != src)])


def all_reduce_seconds(world_size, nbytes, alpha, beta):
    one_way = 0.0
    for _ in range(world_size - 1):
        one_way += alpha + beta * nbytes
    return one_way * 2
