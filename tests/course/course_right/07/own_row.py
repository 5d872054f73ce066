def hierarchical_all_reduce(tensor: torch.Tensor, inside: dist.ProcessGroup, across: dist.ProcessGroup) -> None:
    size, place = dist.get_world_size(inside), dist.get_rank(inside)
    step = len(tensor) // size
    part = torch.zeros(step, dtype=tensor.dtype)
    dist.reduce_scatter_tensor(part, tensor.clone(), group=inside)
    work = dist.all_reduce(part, group=across, async_op=True)
    work.wait()
    whole = torch.zeros_like(tensor)
    dist.all_gather_into_tensor(whole, part, group=inside)
    tensor[:] = whole
