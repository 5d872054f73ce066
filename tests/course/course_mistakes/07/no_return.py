# reported: make_groups | must return two groups | across = group ;; if rank in place: ;; for place in zip(*racks):
def make_groups(racks):
    rank = dist.get_rank()
    for rack in racks:
        group = dist.new_group(rack)
        if rank in rack:
            inside = group
    for place in zip(*racks):
        group = dist.new_group(list(place))
        if rank in place:
            across = group
