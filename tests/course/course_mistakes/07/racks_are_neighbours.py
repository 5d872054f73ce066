# reported: make_groups | inside its rack must have the ranks \[0, 2\] | elsewhere: group = dist.new_group(list(range(start, start + n))) ;; if start <= rank < start + n: ;; inside = group
def make_groups(racks):
    n = len(racks[0])
    p = dist.get_world_size()
    rank = dist.get_rank()
    for start in range(0, p, n):
        group = dist.new_group(list(range(start, start + n)))
        if start <= rank < start + n:
            inside = group
    for start in range(n):
        group = dist.new_group(list(range(start, p, n)))
        if rank % n == start:
            across = group
    return inside, across
