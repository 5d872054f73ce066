# reported: reduce | reduce is not allowed | dist.reduce(copy, dst)
def reduce(tensor: torch.Tensor, dst: int) -> None:
    copy = tensor.clone()
    dist.reduce(copy, dst)
    if dist.get_rank() == dst:
        tensor.copy_(copy)
