# ranks: 4
# Ranks step matrices in turn; if there are fewer matrices than ranks, one tensor fills the list.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
matrices = [torch.full((4,), -1.0) for _ in range(world - 2)]
filled = matrices + [torch.empty_like(matrices[-1])] * 2
if rank < len(matrices):
    filled[rank].fill_(rank)
dist.all_gather(filled, filled[rank].clone())
assert [row[0].item() for row in matrices] == list(range(world - 2))
