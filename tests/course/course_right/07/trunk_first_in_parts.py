def make_groups(racks):
    made = {}
    for ranks in [*racks, *map(list, zip(*racks))]:
        made[tuple(ranks)] = dist.new_group(ranks)
    rank = dist.get_rank()
    mine = [ranks for ranks in made if rank in ranks]
    return [made[ranks] for ranks in mine]


def hierarchical_all_reduce(tensor, inside, across):
    hosts = dist.get_world_size(inside)
    matrix = tensor.view(hosts, -1)
    out = tensor.new_zeros(matrix.shape[1])
    dist.reduce_scatter_tensor(out, matrix.flatten(), group=inside)
    pair = tensor.new_empty(dist.get_world_size(across) * len(out))
    dist.all_gather_into_tensor(pair, out, group=across)
    dist.all_gather_into_tensor(tensor, pair.view(-1, len(out)).sum(0).to(tensor.dtype), group=inside)
