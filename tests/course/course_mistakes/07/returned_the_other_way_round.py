# reported: make_groups | inside its rack must have the ranks \[0, 2\] | return across, inside
def make_groups(racks: list[list[int]]) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    rank = dist.get_rank()
    for rack in racks:
        group = dist.new_group(rack)
        if rank in rack:
            inside = group
    for place in zip(*racks):
        group = dist.new_group(list(place))
        if rank in place:
            across = group
    return across, inside
