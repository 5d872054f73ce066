def find_cycle(waits_for: dict[int, int]) -> list[int]:
    rank, visited = None, set()
    for start in waits_for:
        rank = start
        for _ in range(len(waits_for) + 1):
            rank = waits_for.get(rank)
            if rank is None:
                break
        if rank is not None:
            break
    if rank is None:
        return []
    path = []
    while rank not in path:
        path.append(rank)
        rank = waits_for[rank]
    smallest = min(range(len(path)), key=path.__getitem__)
    return path[smallest:] + path[:smallest]


def shift(mine, received):
    rank, p = dist.get_rank(), dist.get_world_size()
    batch = [dist.P2POp(dist.irecv, received, (rank - 1) % p), dist.P2POp(dist.isend, mine, (rank + 1) % p)]
    for request in dist.batch_isend_irecv(batch)[::-1]:
        request.wait()
