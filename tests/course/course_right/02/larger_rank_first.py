def exchange(mine, theirs, peer):
    steps = [lambda: dist.send(mine, peer), lambda: dist.recv(theirs, peer)]
    if dist.get_rank() < peer:
        steps.reverse()
    for step in steps:
        step()


def shift(mine, received):
    rank, p = dist.get_rank(), dist.get_world_size()
    coming = dist.irecv(received, (rank + p - 1) % p)
    dist.send(mine, (rank + 1) % p)
    coming.wait()


def find_cycle(waits_for):
    import networkx as nx

    cycles = list(nx.simple_cycles(nx.DiGraph(list(waits_for.items()))))
    if not cycles:
        return []
    found = cycles[0]
    at = found.index(min(found))
    return found[at:] + found[:at]
