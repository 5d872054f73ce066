# reported: circle | must be \[\], not None | for start in sorted(waits_for): ;; if rank == start and path: ;; return path
def circle(waits_for):
    for start in sorted(waits_for):
        path, rank = [], start
        while rank in waits_for and rank not in path:
            path.append(rank)
            rank = waits_for[rank]
        if rank == start and path:
            return path
