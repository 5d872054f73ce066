# reported: find_cycle | KeyError | rank = waits_for[rank]
def find_cycle(waits_for):
    for start in sorted(waits_for):
        rank, path = start, []
        while rank not in path:
            path.append(rank)
            rank = waits_for[rank]
        if rank == start:
            return path
    return []
