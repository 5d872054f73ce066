# kind: parameter mismatch
# ranks: 2
# Steps by hand, without an optimizer: gradients are averaged, and the models began unlike.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(5, 2)
# fix: for p in model.parameters(): dist.broadcast(p.data, src=0)
for _ in range(4):
    model.zero_grad()
    model(torch.randn(4, 5)).square().mean().backward()  # reported: 0; 1
    with torch.no_grad():
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p -= 0.1 * p.grad / dist.get_world_size()
