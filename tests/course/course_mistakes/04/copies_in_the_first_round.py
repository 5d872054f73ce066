# reported: ring_all_reduce | must hold .* but holds rank | for request in dist.batch_isend_irecv(ops): ;; ops = [dist.P2POp(
def ring_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = tensor.tensor_split(p)
    for step in range(2 * (p - 1)):
        mine, theirs = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        ops = [dist.P2POp(dist.isend, mine, (rank + 1) % p), dist.P2POp(dist.irecv, theirs, (rank - 1) % p)]
        for request in dist.batch_isend_irecv(ops):
            request.wait()
