# reported: tree_broadcast | there is no rank 3 | dist.send(tensor, rank + distance) ;; if rank < distance:
def tree_broadcast(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    distance = 1
    while distance < p:
        if rank < distance:
            dist.send(tensor, rank + distance)
        elif rank < 2 * distance:
            dist.recv(tensor, rank - distance)
        distance *= 2
