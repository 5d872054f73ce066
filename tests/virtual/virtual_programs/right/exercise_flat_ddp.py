# ranks: 3
import torch, torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(4, 4)).square().mean().backward()
    grads = [p.grad for p in net.parameters()]
    flat = _flatten_dense_tensors(grads)
    dist.all_reduce(flat)
    flat.div_(dist.get_world_size())
    for g, f in zip(grads, _unflatten_dense_tensors(flat, grads)):
        g.copy_(f)
    opt.step()
