# reported: hierarchical_all_reduce | outputShape | elsewhere: part = torch.empty(tensor.numel() // dist.get_world_size())
def hierarchical_all_reduce(tensor: torch.Tensor, inside: dist.ProcessGroup, across: dist.ProcessGroup) -> None:
    part = torch.empty(tensor.numel() // dist.get_world_size())
    dist.reduce_scatter_tensor(part, tensor, group=inside)
    dist.all_reduce(part, group=across)
    dist.all_gather_into_tensor(tensor, part, group=inside)
