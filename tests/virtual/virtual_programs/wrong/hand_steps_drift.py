# kind: parameter mismatch
# ranks: 2
# A program without an optimizer averages gradients, but its models start with different weights.
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
