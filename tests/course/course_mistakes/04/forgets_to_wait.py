# reported: ring_all_reduce | nothing waits for dist.batch_isend_irecv | dist.batch_isend_irecv(ops)
def ring_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = tensor.tensor_split(p)
    for step in range(2 * (p - 1)):
        theirs = chunks[(rank - step - 1) % p]
        received = torch.empty_like(theirs)
        ops = [
            dist.P2POp(dist.isend, chunks[(rank - step) % p], (rank + 1) % p),
            dist.P2POp(dist.irecv, received, (rank - 1) % p),
        ]
        dist.batch_isend_irecv(ops)
        if step < p - 1:
            theirs += received
        else:
            theirs.copy_(received)
