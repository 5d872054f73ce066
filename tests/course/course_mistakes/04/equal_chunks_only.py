# reported: ring_all_reduce | invalid for input of size | chunks = tensor.view(p, -1)
def ring_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = tensor.view(p, -1)
    received = torch.empty_like(chunks[0])
    for step in range(2 * (p - 1)):
        theirs = chunks[(rank - step - 1) % p]
        ops = [
            dist.P2POp(dist.isend, chunks[(rank - step) % p], (rank + 1) % p),
            dist.P2POp(dist.irecv, received, (rank - 1) % p),
        ]
        for request in dist.batch_isend_irecv(ops):
            request.wait()
        if step < p - 1:
            theirs += received
        else:
            theirs.copy_(received)
