# reported: reduce | must not change | tensor += other
def reduce(tensor: torch.Tensor, dst: int) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place = (rank - dst - 1) % world_size  # the chain begins beside dst and ends there
    if place > 0:
        other = torch.empty_like(tensor)
        dist.recv(other, (rank - 1) % world_size)
        tensor += other
    if rank != dst:
        dist.send(tensor, (rank + 1) % world_size)
