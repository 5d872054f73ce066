# kind: wrong all_reduce
# ranks: 4
"""A learner's ring: the second half sends the wrong chunk round."""
import torch
import torch.distributed as dist


def ring_all_reduce(t):
    rank, n = dist.get_rank(), dist.get_world_size()
    chunks = t.chunk(n)
    right, left = (rank + 1) % n, (rank - 1) % n
    buf = torch.empty_like(chunks[0])
    for step in range(n - 1):
        req = dist.isend(chunks[(rank - step) % n].clone(), right)
        dist.recv(buf, left)
        chunks[(rank - step - 1) % n].add_(buf)
        req.wait()
    for step in range(n - 1):
        req = dist.isend(chunks[(rank - step) % n].clone(), right)   # should be rank + 1 - step  # fix: req = dist.isend(chunks[(rank + 1 - step) % n].clone(), right)
        dist.recv(buf, left)
        chunks[(rank - step - 1) % n].copy_(buf)  # fix: chunks[(rank - step) % n].copy_(buf)
        req.wait()


dist.init_process_group("gloo")
torch.manual_seed(0)
layer = torch.nn.Linear(8, 8, bias=False)
opt = torch.optim.SGD(layer.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(2):
    opt.zero_grad()
    layer(torch.randn(4, 8)).square().mean().backward()
    flat = layer.weight.grad.view(-1)
    ring_all_reduce(flat)
    flat /= dist.get_world_size()
    opt.step()  # reported: 0-3
