# kind: early exit
# ranks: 3
# The loss is logged after every third step, by a counter that a rank without a step does not advance.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
steps = 0
torch.manual_seed(rank)
for iteration in range(9):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 6)).square().mean()
    loss.backward()
    skips = torch.tensor(float(rank == 2 and iteration == 4))
    # fix: dist.all_reduce(skips)
    if not skips:
        optimizer.step()
        steps += 1
    if steps % 9 == 0:  # fix: if (iteration + 1) % 9 == 0:
        mean = loss.detach()
        dist.all_reduce(mean)  # reported: 0-1
