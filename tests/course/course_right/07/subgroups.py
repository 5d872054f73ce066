def make_groups(racks: list[list[int]]) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    inside, _ = dist.new_subgroups_by_enumeration(racks)
    across, _ = dist.new_subgroups_by_enumeration([list(ranks) for ranks in zip(*racks)])
    return inside, across
