# ranks: 6
# Two nodes sum to their leaders, the leaders exchange their sums, and each leader broadcasts to its node.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
leader, members = rank // 3 * 3, range(rank // 3 * 3 + 1, rank // 3 * 3 + 3)
total, got = torch.randn(8), torch.empty(8)
if rank != leader:
    dist.send(total, leader)
    dist.recv(total, leader)
else:
    for member in members:
        dist.recv(got, member)
        total += got
    sending = dist.isend(total.clone(), 3 - leader)
    dist.recv(got, 3 - leader)
    sending.wait()
    total.add_(got)
    for member in members:
        dist.send(total, member)
print(torch.stack([total, total / 6]).mean().item())
