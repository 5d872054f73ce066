# ranks: 4
"""All-reduce on a ring by batch_isend_irecv, checked against the backend's own."""
import torch
import torch.distributed as dist


def ring_all_reduce(t):
    rank, n = dist.get_rank(), dist.get_world_size()
    chunks = list(t.view(-1).tensor_split(n))
    right, left = (rank + 1) % n, (rank - 1) % n

    def exchange(out, into):
        ops = [dist.P2POp(dist.isend, out, right), dist.P2POp(dist.irecv, into, left)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    for step in range(n - 1):
        s, d = (rank - step) % n, (rank - step - 1) % n
        buffer = torch.empty_like(chunks[d])
        exchange(chunks[s], buffer)
        chunks[d] += buffer
    for step in range(n - 1):
        s, d = (rank + 1 - step) % n, (rank - step) % n
        exchange(chunks[s], chunks[d])


dist.init_process_group("gloo")
x = torch.arange(10.0) * (dist.get_rank() + 1)
expected = x.clone()
dist.all_reduce(expected)
ring_all_reduce(x)
assert torch.equal(x, expected), (x, expected)
dist.destroy_process_group()
