def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    size = (tensor.numel() + p - 1) // p
    padded = torch.zeros(p * size, dtype=tensor.dtype)
    padded[: tensor.numel()] = tensor
    rows = padded.view(p, size)

    def pass_on(send, receive):
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.irecv, receive, (rank - 1) % p), dist.P2POp(dist.isend, send, (rank + 1) % p)]
        )
        for work in works:
            work.wait()

    for step in range(p - 1):
        incoming = torch.empty(size, dtype=tensor.dtype)
        pass_on(rows[(rank - step) % p], incoming)
        rows[(rank - step - 1) % p] += incoming
    for step in range(p - 1):
        pass_on(rows[(rank - step + 1) % p], rows[(rank - step) % p])
    tensor.copy_(padded[: tensor.numel()])
