# ranks: 2
"""Hooks of DDP that leave a sum: of losses that are divided, or that is divided by the samples of all ranks later."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def summed(group, bucket):
    handle = dist.all_reduce(bucket.buffer().bfloat16(), group=group, async_op=True)
    return handle.get_future().then(lambda done: bucket.buffer().copy_(done.value()[0]))


dist.init_process_group("gloo")
world_size, rank = dist.get_world_size(), dist.get_rank()
for form in ("loss", "gradients", "samples"):
    torch.manual_seed(0)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
    model.register_comm_hook(None, summed)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for _ in range(3):
        x = torch.randn(4, 8)
        opt.zero_grad()
        errors = (model(x)[:, 0] - x.sum(1)).square()
        loss = {"loss": errors.mean() / world_size, "gradients": errors.mean(), "samples": errors.sum()}[form]
        loss.backward()
        for parameter in model.parameters() if form != "loss" else ():
            parameter.grad /= world_size if form == "gradients" else world_size * len(x)
        opt.step()
dist.destroy_process_group()
