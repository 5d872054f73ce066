# ranks: 2
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(3, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
stop = torch.zeros(1)
for epoch in range(50):
    opt.zero_grad()
    loss = (model(torch.ones(2, 3)) - dist.get_rank()).pow(2).mean()
    loss.backward()
    opt.step()
    if dist.get_rank() == 0 and epoch >= 4:
        stop += 1
    dist.broadcast(stop, src=0)
    if stop.item():
        break
assert epoch == 4
dist.destroy_process_group()
