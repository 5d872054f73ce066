# reported: hierarchical_all_reduce | may cross the trunk | dist.all_reduce(tensor, group=across) ;; dist.all_reduce(tensor, group=inside)
def hierarchical_all_reduce(tensor: torch.Tensor, inside: dist.ProcessGroup, across: dist.ProcessGroup) -> None:
    dist.all_reduce(tensor, group=inside)
    dist.all_reduce(tensor, group=across)
