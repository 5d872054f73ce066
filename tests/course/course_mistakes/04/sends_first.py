# reported: ring_all_reduce | deadlock | dist.send(chunks[ ;; dist.recv(received
def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = tensor.tensor_split(p)
    for step in range(2 * (p - 1)):
        received = torch.empty_like(chunks[(rank - step - 1) % p])
        dist.send(chunks[(rank - step) % p], (rank + 1) % p)
        dist.recv(received, (rank - 1) % p)
        if step < p - 1:
            chunks[(rank - step - 1) % p].add_(received)
        else:
            chunks[(rank - step - 1) % p].copy_(received)
