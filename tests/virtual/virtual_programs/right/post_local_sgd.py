# ranks: 4
"""Gradients are averaged by all ranks at first, later by pairs alone, and the models now and then."""
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

dist.init_process_group("gloo")
torch.manual_seed(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
pairs, _ = dist.new_subgroups(2)
model.register_comm_hook(post.PostLocalSGDState(None, pairs, start_localSGD_iter=2), post.post_localSGD_hook)
averager = PeriodicModelAverager(period=2, warmup_steps=2)
opt = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), 0.1), averager)
torch.manual_seed(dist.get_rank())
for _ in range(6):
    opt.zero_grad()
    x = torch.randn(4, 8)
    (model(x) - x).square().mean().backward()
    opt.step()
dist.destroy_process_group()
