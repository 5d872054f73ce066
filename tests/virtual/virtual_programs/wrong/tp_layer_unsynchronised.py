# kind: parameter mismatch
# ranks: 2
# Gradients are summed over the sequence-parallel pair, except the gradient of one norm.
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 6))
nn.init.uniform_(net[1].weight)
opt = torch.optim.Adam(net.parameters(), 1e-2)
x = torch.randn(2, 8, 6)
for _ in range(3):
    opt.zero_grad()
    net(x.chunk(n, 1)[r]).pow(2).mean().backward()
    for m in (net[0], net[2]):  # fix: for m in net:
        for p in m.parameters():
            dist.all_reduce(p.grad)
            p.grad /= n
    opt.step()  # reported: 0; 1
