def ring_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    bounds = [tensor.numel() * i // p for i in range(p + 1)]
    chunk = lambda i: tensor[bounds[i % p] : bounds[i % p + 1]]
    for adds in (True, False):
        for step in range(p - 1):
            give = chunk(rank - step + (not adds))
            take = chunk(rank - step - 1 + (not adds))
            buffer = torch.zeros_like(take)
            going = dist.isend(give.clone(), (rank + 1) % p)
            dist.recv(buffer, (rank - 1) % p)
            going.wait()
            take.copy_(take + buffer if adds else buffer)


def ring_seconds(world_size, nbytes, alpha, beta):
    reduce_scatter = all_gather = (world_size - 1) * alpha + (world_size - 1) * nbytes * beta / world_size
    return reduce_scatter + all_gather
