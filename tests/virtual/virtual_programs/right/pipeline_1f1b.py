# ranks: 2
import torch, torch.nn as nn, torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
module = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
stage = PipelineStage(module, rank, world, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda out, target: (out - target).pow(2).mean())
opt = torch.optim.SGD(module.parameters(), lr=0.1)
torch.manual_seed(11)
for _ in range(2):
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    opt.zero_grad()
    if rank == 0:
        schedule.step(x)
    else:
        losses = []
        schedule.step(target=y, losses=losses)
    opt.step()
dist.destroy_process_group()
