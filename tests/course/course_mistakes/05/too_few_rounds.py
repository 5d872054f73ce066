# reported: tree_broadcast | rank 2.*holds rank 2's | for level in range(int(math.log2(p))):
def tree_broadcast(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    for level in range(int(math.log2(p))):
        distance = 2**level
        if rank < distance and rank + distance < p:
            dist.send(tensor, rank + distance)
        elif distance <= rank < 2 * distance:
            dist.recv(tensor, rank - distance)
