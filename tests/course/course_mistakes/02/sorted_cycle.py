# reported: find_cycle | must be \[2, 7, 5\] | return sorted(
def find_cycle(waits_for: dict[int, int]) -> list[int]:
    for start in waits_for:
        rank, seen = start, []
        while rank in waits_for and rank not in seen:
            seen.append(rank)
            rank = waits_for[rank]
        if rank in seen:
            return sorted(seen[seen.index(rank):])
    return []
