# told: hierarchical_all_reduce | may cross the trunk
def hierarchical_all_reduce(tensor: torch.Tensor, inside: dist.ProcessGroup, across: dist.ProcessGroup) -> None:
    dist.all_reduce(tensor, group=inside)
    dist.all_reduce(tensor, group=across)
