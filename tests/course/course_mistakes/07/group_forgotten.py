# reported: hierarchical_all_reduce | 2 times | elsewhere: dist.all_reduce(part)
def hierarchical_all_reduce(tensor: torch.Tensor, inside: dist.ProcessGroup, across: dist.ProcessGroup) -> None:
    part = torch.empty(len(tensor) // inside.size())
    dist.reduce_scatter_tensor(part, tensor, group=inside)
    dist.all_reduce(part)
    dist.all_gather_into_tensor(tensor, part, group=inside)
