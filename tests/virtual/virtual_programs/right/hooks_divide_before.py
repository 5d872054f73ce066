# ranks: 2
# Separate models: parameter hooks divide before or after the sum, and buckets divide the sum.
import torch
import torch.distributed as dist
from torch import nn


def after(gradient):
    gradient = gradient.clone()
    dist.all_reduce(gradient)
    return gradient / dist.get_world_size()


def before(gradient):
    gradient = gradient / dist.get_world_size()
    dist.all_reduce(gradient)
    return gradient


def averaged(parameter):
    dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
    parameter.grad /= dist.get_world_size()


dist.init_process_group("gloo")
world = dist.get_world_size()
for hook in (after, before, averaged, None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2), nn.Linear(2, 1))
    for p in model.parameters() if hook is not None else ():
        register = p.register_post_accumulate_grad_hook if hook is averaged else p.register_hook
        register(hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(dist.get_rank())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        parameters = list(model.parameters()) if hook is None else []
        for bucket in (parameters[:3], parameters[3:]):
            if bucket:
                flat = torch.cat([p.grad.flatten() for p in bucket]) / world
                dist.all_reduce(flat)
                for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                    p.grad.copy_(part.view_as(p))
        optimizer.step()
