"""Train a small model on many ranks with one of torch's strategies, and on one device: the losses are equal."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

WIDTH, BATCH, STEPS = 16, 8, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def build():
    torch.manual_seed(1)
    return nn.Sequential(Block(), Block(), Block(), Block()).double()


def batch(step):
    generator = torch.Generator().manual_seed(100 + step)
    return torch.randn(2, BATCH, WIDTH, generator=generator, dtype=torch.float64)


def train(model, part=slice(None), sync=lambda loss: loss, scale=1.0):
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    for step in range(STEPS):
        x, y = batch(step)[:, part]
        loss = nn.functional.mse_loss(model(x), y) * scale
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(sync(loss.detach()).item())
    return losses


def total(loss):
    dist.all_reduce(loss)
    return loss


def mean(loss):
    return total(loss) / dist.get_world_size()


def own_part(rank, size):
    return slice(rank * BATCH // size, (rank + 1) * BATCH // size)


def ddp(rank, size):
    return train(DistributedDataParallel(build(), bucket_cap_mb=0.01), own_part(rank, size), mean)


def ddp_hook(rank, size):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = DistributedDataParallel(build(), find_unused_parameters=True)
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    return train(model, own_part(rank, size), mean)


def fsdp2(rank, size):
    from torch.distributed.fsdp import fully_shard

    model = build()
    for block in model:
        fully_shard(block)
    return train(fully_shard(model), own_part(rank, size), mean)


def hsdp(rank, size):
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replica", "shard"))
    return train(fully_shard(build(), mesh=mesh), own_part(rank, size), mean)


def fsdp1(rank, size):
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(build(), device_id=torch.device("cpu"), use_orig_params=True)
    return train(model, own_part(rank, size), mean)


def tensor(rank, size):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model, mesh = build(), init_device_mesh("cpu", (size,))
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return train(model)


def sequence(rank, size):
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model, mesh = build(), init_device_mesh("cpu", (size,))
    plan = {"up": ColwiseParallel(input_layouts=Shard(0)), "down": RowwiseParallel(output_layouts=Shard(0))}
    for block in model:
        parallelize_module(block, mesh, plan)
    return train(model, own_part(rank, size), total, 1 / size)


def pipeline(rank, size):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    layers = build()
    blocks = len(layers) // size
    model = layers[rank * blocks : (rank + 1) * blocks]
    stage = PipelineStage(model, rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    values = []
    for step in range(STEPS):
        x, y = batch(step)
        losses = []
        optimizer.zero_grad()
        inputs = [x] if rank == 0 else []
        schedule.step(*inputs, **({"target": y, "losses": losses} if rank == size - 1 else {}))
        optimizer.step()
        loss = torch.stack(losses).mean().detach() if losses else torch.zeros((), dtype=torch.float64)
        dist.broadcast(loss, size - 1)
        values.append(loss.item())
    return values


WAYS = (ddp, ddp_hook, fsdp1, fsdp2, hsdp, tensor, sequence, pipeline)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
alone = train(build())
way = {function.__name__: function for function in WAYS}[sys.argv[1]]
losses = way(rank, size)
print("equal" if torch.allclose(torch.tensor(losses), torch.tensor(alone), rtol=1e-9) else f"{losses} are not {alone}")
