# reported: hierarchical_all_reduce | may cross the trunk | dist.reduce_scatter_tensor(part ;; dist.all_reduce(part ;; dist.all_gather_into_tensor(
def hierarchical_all_reduce(tensor: torch.Tensor, inside: dist.ProcessGroup, across: dist.ProcessGroup) -> None:
    part = torch.empty(tensor.numel() // dist.get_world_size(across), dtype=tensor.dtype)
    dist.reduce_scatter_tensor(part, tensor, group=across)
    dist.all_reduce(part, group=inside)
    dist.all_gather_into_tensor(tensor, part, group=across)
