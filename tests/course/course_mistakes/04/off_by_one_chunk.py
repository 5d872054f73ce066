# reported: ring_all_reduce | must hold | step(chunks[(rank - i) % p], chunks[(rank - i - 1) % p])
def ring_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = tensor.tensor_split(p)

    def step(send, receive):
        ops = [dist.P2POp(dist.isend, send, (rank + 1) % p), dist.P2POp(dist.irecv, receive, (rank - 1) % p)]
        for request in dist.batch_isend_irecv(ops):
            request.wait()

    for i in range(p - 1):
        received = torch.empty_like(chunks[(rank - i - 1) % p])
        step(chunks[(rank - i) % p], received)
        chunks[(rank - i - 1) % p].add_(received)
    for i in range(p - 1):
        step(chunks[(rank - i) % p], chunks[(rank - i - 1) % p])
