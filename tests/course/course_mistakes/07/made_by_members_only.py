# reported: make_groups | every rank|all ranks|new_group | inside = dist.new_group(rack) ;; if rank in rack:
def make_groups(racks: list[list[int]]) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    rank = dist.get_rank()
    for rack in racks:
        if rank in rack:
            inside = dist.new_group(rack)
    for place in zip(*racks):
        if rank in place:
            across = dist.new_group(list(place))
    return inside, across
