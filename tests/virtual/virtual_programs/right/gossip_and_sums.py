# ranks: 4
# Gossip, an exchange between all pairs, and pairwise sums next to a complete sum.
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(r)
x = torch.randn(6)
for step in range(4):
    got = torch.empty(6)
    peer = r ^ 1 if step % 2 == 0 else n - 1 - r
    h = dist.isend(x, peer); dist.recv(got, peer); h.wait()
    x = (x + got) / 2
y = torch.ones(3) * r
parts = [torch.empty(3) for _ in range(n)]
hs = [dist.isend(y, o) for o in range(n) if o != r]
for o in range(n):
    if o != r:
        dist.recv(parts[o], o)
parts[r] = y
for h in hs: h.wait()
total = sum(parts)
z = torch.randn(4); got = torch.empty(4)
h = dist.isend(z, r ^ 1); dist.recv(got, r ^ 1); h.wait()
z = z + got
print(torch.cat([total, z]).sum() / n)
grads = torch.randn(5)
if r == 0:
    acc = torch.zeros(5)
    for step in range(3):
        for o in range(1, n):
            g = torch.empty(5); dist.recv(g, o); acc += g
        for o in range(1, n): dist.send(acc, o)
else:
    for step in range(3):
        dist.send(grads * (step + 1), 0)
        w = torch.empty(5); dist.recv(w, 0)
