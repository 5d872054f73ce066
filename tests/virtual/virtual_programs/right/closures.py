# ranks: 2
"""Optimizers that evaluate the loss themselves, once or many times in a step."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
x, y = torch.randn(16, 4), torch.randn(16, 1)
for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.LBFGS):
    model = DDP(nn.Linear(4, 1))
    optimizer = kind(model.parameters(), lr=0.1)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        losses.append(loss.item())
        return loss

    for step in range(4):
        _ = optimizer.step(closure) if step % 2 else optimizer.step(closure=closure)
    assert len(losses) >= 4
