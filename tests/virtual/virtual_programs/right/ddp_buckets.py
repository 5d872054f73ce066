# ranks: 4
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(backend="gloo")
rank = dist.get_rank()
net = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.Tanh())])
ddp = DistributedDataParallel(net, bucket_cap_mb=0.005, gradient_as_bucket_view=True)
adam = torch.optim.Adam(ddp.parameters(), lr=1e-3)
g = torch.Generator().manual_seed(rank)
for step in range(4):
    adam.zero_grad(set_to_none=True)
    out = ddp(torch.randn(4, 32, generator=g))
    out.square().mean().backward()
    adam.step()
dist.barrier()
dist.destroy_process_group()
