# kind: gradient scale mismatch
# ranks: 2
# options: --strict
"""Gradients are clipped before they are averaged, so that ranks with steep losses count less."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(6, 6)
opt = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    x = torch.randn(4, 6) * (1 + dist.get_rank())
    opt.zero_grad()
    (model(x) - x).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # reported: 0-1  # fix:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    # fix: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    opt.step()
dist.destroy_process_group()
