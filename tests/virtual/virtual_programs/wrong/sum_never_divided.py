# kind: sum not averaged
# ranks: 4
"""Data parallelism by hand, without the division."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)  # reported: 0-3
        # fix: p.grad /= dist.get_world_size()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for step in range(3):
    opt.zero_grad()
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    F.cross_entropy(model(x), y).backward()
    average_gradients(model)
    opt.step()
