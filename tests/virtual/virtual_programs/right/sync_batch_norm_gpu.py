# ranks: 4
# options: --gpu
"""torch's SyncBatchNorm, beside a batch norm of all ranks' data on one device."""
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)
alone = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU()).cuda()
spread = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU())).cuda()
spread.load_state_dict(alone.state_dict())
spread = nn.parallel.DistributedDataParallel(spread, device_ids=[rank])
for step in range(2):
    x = torch.randn(2 * world, 3, 5, 5).cuda()
    alone(x).square().mean().backward()
    spread(x.chunk(world)[rank]).square().mean().backward()
spread.eval(), alone.eval()
assert torch.allclose(spread(x), alone(x), atol=1e-4)
for a, b in zip(spread.parameters(), alone.parameters()):
    assert torch.allclose(a.grad, b.grad, atol=1e-5), (a.grad, b.grad)
dist.destroy_process_group()
