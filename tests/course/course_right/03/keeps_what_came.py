def reduce(tensor: torch.Tensor, dst: int) -> None:
    if dist.get_rank() == dst:
        came = {rank: torch.empty_like(tensor) for rank in range(dist.get_world_size()) if rank != dst}
        for rank in reversed(list(came)):
            dist.recv(came[rank], src=rank)
        if came:
            tensor.copy_(torch.stack([tensor, *came.values()]).sum(dim=0))
    else:
        dist.send(tensor, dst=dst)


def all_reduce(tensor: torch.Tensor) -> None:
    if dist.get_rank():
        dist.send(tensor, 0)
        dist.recv(tensor, 0)
        return
    others = range(1, dist.get_world_size())
    for rank in others:
        part = tensor.new_empty(tensor.shape)
        dist.recv(part, rank)
        tensor.add_(part)
    for rank in others:
        dist.send(tensor, rank)


def all_reduce_seconds(world_size, nbytes, alpha, beta):
    messages = sum(2 for rank in range(world_size) if rank != 0)
    return messages * alpha + messages * nbytes * beta
