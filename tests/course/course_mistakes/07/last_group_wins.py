# told: make_groups | inside its rack should be of ranks \[0, 2\] | elsewhere: inside = dist.new_group(rack) ;; for rack in racks:
def make_groups(racks):
    for rack in racks:
        inside = dist.new_group(rack)
    for ranks in zip(*racks):
        across = dist.new_group(list(ranks))
    return inside, across
