# ranks: 4
"""Predictions of shards of unequal size: sizes first, then padded tensors."""
import torch
import torch.distributed as dist


def gather_unequal(t):
    n = dist.get_world_size()
    sizes = [torch.zeros(1, dtype=torch.long) for _ in range(n)]
    dist.all_gather(sizes, torch.tensor([len(t)]))
    most = int(max(sizes))
    padded = torch.cat([t, t.new_zeros(most - len(t), *t.shape[1:])])
    out = [torch.empty_like(padded) for _ in range(n)]
    dist.all_gather(out, padded)
    return torch.cat([o[: int(s)] for o, s in zip(out, sizes)])


dist.init_process_group("gloo")
data = torch.arange(22).view(11, 2)
mine = data.tensor_split(dist.get_world_size())[dist.get_rank()]
assert torch.equal(gather_unequal(mine), data)
dist.destroy_process_group()
