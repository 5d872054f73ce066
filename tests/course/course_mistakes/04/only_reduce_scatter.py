# reported: ring_all_reduce | holds rank 0's | chunks[(rank - step - 1) % p].add_(into)
def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = list(tensor.tensor_split(p))
    for step in range(p - 1):
        out = chunks[(rank - step) % p]
        into = torch.empty_like(chunks[(rank - step - 1) % p])
        for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, out, (rank + 1) % p), dist.P2POp(dist.irecv, into, (rank - 1) % p)]
        ):
            work.wait()
        chunks[(rank - step - 1) % p].add_(into)
