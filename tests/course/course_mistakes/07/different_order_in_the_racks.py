# reported: make_groups | order|deadlock|same | inside = dist.new_group(mine[0]) ;; dist.new_group(rack)
def make_groups(racks):
    rank = dist.get_rank()
    mine = [rack for rack in racks if rank in rack]
    others = [rack for rack in racks if rank not in rack]
    inside = dist.new_group(mine[0])
    for rack in others:
        dist.new_group(rack)
    for place in zip(*racks):
        group = dist.new_group(list(place))
        if rank in place:
            across = group
    return inside, across
