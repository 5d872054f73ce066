# reported: find_cycle | endless | while waits_for[rank] != start: ;; rank = waits_for[rank] ;; if len(found) < 100:
def find_cycle(waits_for):
    start = min(waits_for, default=None)
    if start is None:
        return []
    rank, ranks = start, [start]
    while waits_for[rank] != start:
        rank = waits_for[rank]
        if len(ranks) < 100:
            ranks.append(rank)
    return ranks
