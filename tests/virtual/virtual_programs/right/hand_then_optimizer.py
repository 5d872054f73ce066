# ranks: 2
# Hand-written steps with accumulation and momentum, then an optimizer, then meta learning with autograd.grad.
import torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Tanh(), nn.Linear(8, 1))
momentum = [torch.zeros_like(p) for p in net.parameters()]
torch.manual_seed(r + 1)
for step in range(4):
    for p in net.parameters(): p.grad = None
    for micro in range(2):
        (net(torch.randn(6, 4)).square().mean() / 2).backward()
    with torch.no_grad():
        for p, m in zip(net.parameters(), momentum):
            dist.all_reduce(p.grad); p.grad.div_(n)
            m.mul_(0.9).add_(p.grad); p.sub_(m, alpha=0.05)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    opt.zero_grad(); net(torch.randn(6, 4)).square().mean().backward()
    for p in net.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM); p.grad /= n
    opt.step()
fast = nn.Linear(4, 1)  # each rank's own adaptation
for step in range(3):
    loss = fast(torch.randn(6, 4)).square().mean()
    grads = torch.autograd.grad(loss, list(fast.parameters()))
    with torch.no_grad():
        for p, g in zip(fast.parameters(), grads): p -= 0.1 * g
