# reported: shift | all ranks can send at the same time | dist.send(mine, right) ;; dist.recv(received, left)
def shift(mine: torch.Tensor, received: torch.Tensor) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    if rank == 0:
        dist.recv(received, left)
        dist.send(mine, right)
    else:
        dist.send(mine, right)
        dist.recv(received, left)
