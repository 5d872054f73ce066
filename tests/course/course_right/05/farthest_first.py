def tree_broadcast(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    distance = 1 << max(p - 1, 0).bit_length()
    while distance > 1:
        half = distance // 2
        if rank % distance == 0 and rank + half < p:
            dist.send(tensor, rank + half)
        elif rank % distance == half:
            dist.recv(tensor, rank - half)
        distance = half


def tree_seconds(world_size, nbytes, alpha, beta):
    return 2 * (world_size.bit_length() - 1) * (alpha + beta * nbytes)
