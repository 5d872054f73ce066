# reported: tree_broadcast | broadcast is not allowed | dist.broadcast(tensor, 0)
def tree_broadcast(tensor: torch.Tensor) -> None:
    dist.broadcast(tensor, 0)
