# reported: ring_all_reduce | \[100002\] | elsewhere: size = len(tensor) // p
def ring_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    size = len(tensor) // p
    received = torch.empty(size)
    for step in range(2 * (p - 1)):
        i, j = (rank - step) % p, (rank - step - 1) % p
        ops = [
            dist.P2POp(dist.isend, tensor[i * size : (i + 1) * size], (rank + 1) % p),
            dist.P2POp(dist.irecv, received, (rank - 1) % p),
        ]
        for request in dist.batch_isend_irecv(ops):
            request.wait()
        if step < p - 1:
            tensor[j * size : (j + 1) * size] += received
        else:
            tensor[j * size : (j + 1) * size] = received
