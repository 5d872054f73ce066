# reported: ring_all_reduce | IndexError | theirs = chunks[(rank - step - 1) % p] ;; mine = chunks[(rank - step) % p]
def ring_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = tensor.chunk(p)
    for step in range(2 * (p - 1)):
        mine = chunks[(rank - step) % p]
        theirs = chunks[(rank - step - 1) % p]
        received = torch.empty_like(theirs)
        ops = [
            dist.P2POp(dist.isend, mine, (rank + 1) % p),
            dist.P2POp(dist.irecv, received, (rank - 1) % p),
        ]
        for request in dist.batch_isend_irecv(ops):
            request.wait()
        if step < p - 1:
            theirs += received
        else:
            theirs.copy_(received)
