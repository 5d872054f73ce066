# kind: parameter mismatch
# ranks: 4
# Each rank initializes its own weights, and only gradients are averaged.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(5, 2)
# fix: for p in model.parameters(): dist.broadcast(p.data, 0)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(4, 5)).square().mean().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    opt.step()  # reported: 0; 1; 2; 3
