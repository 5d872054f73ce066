# reported: ring_all_reduce | (?s)int64.*float32|float32.*int64 | for request in dist.batch_isend_irecv(ops): ;; dist.P2POp(
def ring_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = tensor.tensor_split(p)
    for step in range(2 * (p - 1)):
        mine, theirs = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        received = torch.zeros(theirs.numel())
        ops = [dist.P2POp(dist.isend, mine, (rank + 1) % p), dist.P2POp(dist.irecv, received, (rank - 1) % p)]
        for request in dist.batch_isend_irecv(ops):
            request.wait()
        theirs.copy_(theirs + received if step < p - 1 else received)
