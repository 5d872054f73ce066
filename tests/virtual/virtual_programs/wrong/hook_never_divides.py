# kind: sum not averaged
# ranks: 3
"""A hook of DDP that sends halves, and leaves their sum as it is."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def halved(group, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    handle = dist.all_reduce(bucket.buffer().half(), group=group, async_op=True)
    return handle.get_future().then(lambda done: bucket.buffer().copy_(done.value()[0]))  # fix: return handle.get_future().then(lambda done: bucket.buffer().copy_(done.value()[0] / dist.get_world_size()))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
model.register_comm_hook(None, halved)  # reported: 0-2
opt = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    x = torch.randn(4, 8)
    opt.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    opt.step()
dist.destroy_process_group()
