def broadcast(tensor: torch.Tensor, src: int) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    me, mask = (rank - src) % p, 1
    while mask < p:
        if me < mask:
            if me + mask < p:
                dist.send(tensor, (me + mask + src) % p)
        elif me < 2 * mask:
            dist.recv(tensor, (me - mask + src) % p)
        mask <<= 1


def reduce(tensor: torch.Tensor, dst: int) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    me, mask, mine = (rank - dst) % p, 1, tensor.clone()
    while mask < p:
        if me & mask:
            dist.send(mine, (me - mask + dst) % p)
            break
        if me + mask < p:
            theirs = torch.zeros_like(mine)
            dist.recv(theirs, (me + mask + dst) % p)
            mine.add_(theirs)
        mask <<= 1
    if rank == dst:
        tensor.copy_(mine)
