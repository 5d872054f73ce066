# reported: ring_all_reduce | all_reduce is not allowed | dist.all_reduce(tensor)
def ring_all_reduce(tensor: torch.Tensor) -> None:
    dist.all_reduce(tensor)
