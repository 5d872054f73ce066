# reported: tree_broadcast | 0 -> 2 -> 1 -> 0 | dist.send(tensor, rank + distance) ;; dist.recv(tensor, rank // 2)
def tree_broadcast(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    if rank > 0:
        dist.recv(tensor, rank // 2)
    distance = 1
    while distance < p:
        if rank < distance and rank + distance < p:
            dist.send(tensor, rank + distance)
        distance *= 2
