# ranks: 2
# Losses are divided by the number of micro-batches, even in the last step of an epoch, which has only one.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
ACCUMULATE = 2
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
warm_up = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: step**0.5)
torch.manual_seed(dist.get_rank())
for epoch in range(3):
    batches = torch.randn(3, 2, 4)
    for i, batch in enumerate(batches):
        (model(batch).square().mean() / ACCUMULATE).backward()
        if i % ACCUMULATE == 1 or i == len(batches) - 1:
            opt.step()
            warm_up.step()
            opt.zero_grad()
dist.destroy_process_group()
