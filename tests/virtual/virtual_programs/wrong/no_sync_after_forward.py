# kind: late no_sync
# ranks: 2
# Gradients are accumulated, but no_sync() contains only backward.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(2):
    optimizer.zero_grad()
    x = torch.randn(3, 4)
    loss = model(x).square().mean()  # fix:
    with model.no_sync():
        # fix: loss = model(x).square().mean()
        loss.backward()  # reported: 0-1
    model(torch.randn(3, 4)).square().mean().backward()
    optimizer.step()
