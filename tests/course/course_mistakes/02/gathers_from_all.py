# reported: shift | all_gather is not allowed | dist.all_gather(every, mine)
def shift(mine: torch.Tensor, received: torch.Tensor) -> None:
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    received.copy_(every[dist.get_rank() - 1])
