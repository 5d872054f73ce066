# reported: make_groups | rank 0 is not in the group inside its rack | elsewhere: inside = dist.new_group(rack) ;; for rack in racks:
def make_groups(racks):
    for rack in racks:
        inside = dist.new_group(rack)
    for ranks in zip(*racks):
        across = dist.new_group(list(ranks))
    return inside, across
