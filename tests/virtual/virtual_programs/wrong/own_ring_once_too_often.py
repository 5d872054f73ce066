# kind: wrong all_reduce
# ranks: 5
# Whole tensors move one step too many around a ring, so each rank adds its own data twice.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
mine = torch.randn(6)
total, passing = mine.clone(), mine
for _ in range(world):  # fix: for _ in range(world - 1):
    received = torch.empty_like(mine)
    sending = dist.isend(passing, (rank + 1) % world)
    dist.recv(received, (rank - 1) % world)
    sending.wait()
    total += received  # reported: 0; 1; 2; 3; 4
    passing = received
