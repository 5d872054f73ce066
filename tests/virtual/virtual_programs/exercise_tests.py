"""Tests of a course that spawn ranks and compare a hand-written DDP with one process."""

import os
from copy import deepcopy

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


class BucketedDDP(nn.Module):
    def __init__(self, module, bucket_size_mb):
        super().__init__()
        self.module, self.works = module, []
        for p in module.parameters():
            dist.broadcast(p.data, src=0)
        buckets, size = [[]], 0.0
        for p in reversed([p for p in module.parameters() if p.requires_grad]):
            mb = p.numel() * p.element_size() / 2**20
            if buckets[-1] and size + mb > bucket_size_mb:
                buckets, size = [*buckets, []], 0.0
            buckets[-1].append(p)
            size += mb
        for bucket in buckets:
            waiting = set(bucket)
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda p, b=bucket, w=waiting: self.ready(p, b, w))

    def ready(self, parameter, bucket, waiting):
        waiting.discard(parameter)
        if not waiting:
            waiting.update(bucket)
            flat = torch._utils._flatten_dense_tensors([p.grad for p in bucket])
            self.works.append((dist.all_reduce(flat, async_op=True), flat, bucket))

    def forward(self, *inputs):
        return self.module(*inputs)

    def finish_gradient_synchronization(self):
        for work, flat, bucket in self.works:
            work.wait()
            flat /= dist.get_world_size()
            for p, g in zip(bucket, torch._utils._unflatten_dense_tensors(flat, [p.grad for p in bucket]), strict=True):
                p.grad.copy_(g)
        self.works.clear()


def check(rank, world_size, bucket_size_mb):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12390"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4))
    ddp = BucketedDDP(net, bucket_size_mb)
    alone = deepcopy(net)
    plain, many = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (alone, ddp))
    for step in range(3):
        batch = torch.randn(8, 10, generator=torch.Generator().manual_seed(step))
        plain.zero_grad()
        alone(batch).square().mean().backward()
        plain.step()
        many.zero_grad()
        ddp(batch.chunk(world_size)[rank]).square().mean().backward()
        ddp.finish_gradient_synchronization()
        many.step()
    for p, q in zip(ddp.module.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(p, q, atol=1e-6)
    dist.destroy_process_group()


@pytest.mark.parametrize("bucket_size_mb", [0.0, 0.0003, 1.0])
def test_overlapped_buckets_match_one_process(bucket_size_mb):
    mp.spawn(check, args=(2, bucket_size_mb), nprocs=2, join=True)


def refuse(rank):
    raise ValueError(f"{rank} is refused")


def test_expected_exception_of_ranks_is_not_reported():
    with pytest.raises(mp.ProcessRaisedException, match="is refused"):
        mp.spawn(refuse, nprocs=2)
