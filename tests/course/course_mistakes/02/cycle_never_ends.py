# reported: find_cycle | endless | while waits_for[rank] != start: ;; rank = waits_for[rank] ;; if len(found) < 100:
def find_cycle(waits_for):
    start = min(waits_for, default=None)
    if start is None:
        return []
    rank, found = start, [start]
    while waits_for[rank] != start:
        rank = waits_for[rank]
        if len(found) < 100:
            found.append(rank)
    return found
