# ranks: 4
# Each rank prints its chunks between the two halves of a ring, and the sum is divided before the second half.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
t = torch.randn(world, 3)
for step in range(world - 1):
    got = torch.empty(3)
    sending = dist.isend(t[(rank - step) % world].clone(), (rank + 1) % world)
    dist.recv(got, (rank - 1) % world)
    sending.wait()
    t[(rank - step - 1) % world] += got
print("half way", torch.cat(list(t)).tolist(), t.sum().item())
t /= world
for step in range(world - 1):
    got = torch.empty(3)
    sending = dist.isend(t[(rank + 1 - step) % world].clone(), (rank + 1) % world)
    dist.recv(got, (rank - 1) % world)
    sending.wait()
    t[(rank - step) % world] = got
print(t.mean().item())
