# reported: hierarchical_all_reduce | may cross the trunk | dist.all_reduce(tensor)
def hierarchical_all_reduce(tensor: torch.Tensor, inside: dist.ProcessGroup, across: dist.ProcessGroup) -> None:
    dist.all_reduce(tensor)
