def make_groups(racks):
    rank = dist.get_rank()
    inside = across = None
    for rack in racks:
        group = dist.new_group(ranks=rack)
        inside = group if rank in rack else inside
    for place in range(len(racks[0])):
        members = [rack[place] for rack in racks]
        group = dist.new_group(ranks=members)
        across = group if rank in members else across
    return inside, across


def hierarchical_all_reduce(tensor, inside, across):
    parts = list(tensor.chunk(dist.get_world_size(inside)))
    mine = torch.empty_like(parts[0])
    dist.reduce_scatter(mine, parts, group=inside)
    dist.all_reduce(mine, op=dist.ReduceOp.SUM, group=across)
    dist.all_gather(parts, mine, group=inside)
    tensor.copy_(torch.cat(parts))
