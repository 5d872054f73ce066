# kind: optimizer state mismatch
# ranks: 2
# The learning rate depends on each rank's own validation loss.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(3, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0)
for epoch in range(4):
    opt.zero_grad()
    model(torch.randn(4, 3)).square().mean().backward()
    opt.step()  # reported: 0; 1
    validation = 1.0 / (epoch + 1) if rank == 0 else 1.0
    # fix: total = torch.tensor(validation)
    # fix: dist.all_reduce(total)
    plateau.step(validation)  # fix: plateau.step(total)
