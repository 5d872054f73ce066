# reported: all_reduce | all_gather is not allowed | dist.all_gather(parts, tensor)
def all_reduce(tensor: torch.Tensor) -> None:
    parts = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    tensor.copy_(sum(parts))
