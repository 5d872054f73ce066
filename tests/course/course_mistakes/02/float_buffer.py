# reported: shift | (?s)int64.*float32|float32.*int64 | dist.recv(box, (rank - 1) % world_size) ;; work = dist.isend(
def shift(mine: torch.Tensor, received: torch.Tensor) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    box = torch.zeros(mine.shape)
    work = dist.isend(mine, (rank + 1) % world_size)
    dist.recv(box, (rank - 1) % world_size)
    work.wait()
    received.copy_(box)
