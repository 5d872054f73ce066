# ranks: 4
# Each rank computes the sum of the ranks before it by doubling distances; rank 0 gathers a total by messages.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
prefix = torch.tensor([1.0, float(rank)])
for distance in (1, 2):
    sending = dist.isend(prefix, rank + distance) if rank + distance < world else None
    if rank >= distance:
        got = torch.empty(2)
        dist.recv(got, rank - distance)
        if sending is not None:
            sending.wait()
        prefix = prefix + got
    elif sending is not None:
        sending.wait()
print(prefix.tolist())
if rank:
    dist.send(prefix, 0)
else:
    total = prefix.clone()
    for source in range(1, world):
        got = torch.empty(2)
        dist.recv(got, source)
        total += got
    print(total.mean().item())
