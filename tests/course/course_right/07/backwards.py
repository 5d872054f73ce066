def make_groups(racks):
    columns = [[rack[i] for rack in racks] for i in reversed(range(len(racks[0])))]
    handles = {}
    for kind, groups in (("across", columns), ("inside", racks)):
        for ranks in groups:
            handle = dist.new_group(sorted(ranks))
            if dist.get_rank() in ranks:
                handles[kind] = handle
    return handles["inside"], handles["across"]
