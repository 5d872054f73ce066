# reported: ring_all_reduce | 2 times | elsewhere: for step in range(2 * p): ;; if step < p: ;; theirs += received
def ring_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = tensor.tensor_split(p)
    for step in range(2 * p):
        theirs = chunks[(rank - step - 1) % p]
        received = torch.empty_like(theirs)
        ops = [
            dist.P2POp(dist.isend, chunks[(rank - step) % p], (rank + 1) % p),
            dist.P2POp(dist.irecv, received, (rank - 1) % p),
        ]
        for request in dist.batch_isend_irecv(ops):
            request.wait()
        if step < p:
            theirs += received
        else:
            theirs.copy_(received)
