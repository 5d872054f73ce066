# reported: ring_all_reduce | all_reduce is not allowed | dist.group.WORLD.allreduce(
def ring_all_reduce(tensor: torch.Tensor) -> None:
    dist.group.WORLD.allreduce([tensor]).wait()
