# reported: find_cycle | must be \[1, 2, 3\] | return path
def find_cycle(waits_for: dict[int, int]) -> list[int]:
    for start in sorted(waits_for):
        path = [start]
        while path[-1] in waits_for:
            following = waits_for[path[-1]]
            if following in path:
                return path
            path.append(following)
    return []
