# kind: wrong all_reduce
# ranks: 8
# Only the lower half of the ranks exchanges data along the last dimension of a hypercube.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
x, got = torch.randn(4), torch.empty(4)
for bit in (1, 2, 4):
    partner = rank ^ bit
    if bit == 4 and rank % 4 > 1:  # fix:
        continue  # fix:
    handle = dist.isend(x, partner)
    dist.recv(got, partner)
    handle.wait()
    x = x + got  # reported: 2; 3; 6; 7
