# reported: hierarchical_all_reduce | (?s)int64|Long | dist.reduce_scatter_tensor(part, tensor, group=inside)
def hierarchical_all_reduce(tensor: torch.Tensor, inside, across) -> None:
    part = torch.zeros(tensor.numel() // dist.get_world_size(inside))
    dist.reduce_scatter_tensor(part, tensor, group=inside)
    dist.all_reduce(part, group=across)
    dist.all_gather_into_tensor(tensor, part, group=inside)
