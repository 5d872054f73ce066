# kind: parameter mismatch
# ranks: 3
# Models start with different weights, and an exception occurs before the first step.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(4, 2)
# fix: for p in model.parameters(): dist.broadcast(p.data, src=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(2):
    optimizer.zero_grad()
    loss = model(torch.ones(8, 4)).square().mean()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    losses = [torch.zeros(()) for _ in range(3)]
    dist.all_gather(losses, loss.detach())
    if max(losses) - min(losses) > 1e-6:
        raise RuntimeError("losses of equal models and equal data differ")
    optimizer.step()
