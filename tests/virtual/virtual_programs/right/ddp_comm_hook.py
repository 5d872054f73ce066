# ranks: 2
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP


def mean_in_float64(state, bucket):
    t = bucket.buffer().double() / dist.get_world_size()
    work = dist.all_reduce(t, async_op=True)
    return work.get_future().then(lambda f: f.value()[0].to(bucket.buffer().dtype))


dist.init_process_group("gloo")
r = dist.get_rank()
for hook in (default_hooks.bf16_compress_hook, default_hooks.allreduce_hook, mean_in_float64):
    torch.manual_seed(3)
    m = DDP(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)))
    m.register_comm_hook(None, hook)
    o = torch.optim.SGD(m.parameters(), 0.1)
    for _ in range(3):
        m(torch.randn(2, 4) + r).mean().backward()
        o.step(); o.zero_grad()
