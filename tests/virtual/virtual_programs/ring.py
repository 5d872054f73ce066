"""A hand-written ring all_reduce of 1 MiB with isend and irecv; its size is a multiple of the number of ranks."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
x = torch.full((1 << 18,), float(rank + 1))
chunks = list(x.chunk(world_size))
incoming = torch.empty_like(chunks[0])
after, before = (rank + 1) % world_size, (rank - 1) % world_size
for phase in range(2):
    for step in range(world_size - 1):
        sent, received = (rank - step + phase) % world_size, (rank - step - 1 + phase) % world_size
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.irecv, incoming, before), dist.P2POp(dist.isend, chunks[sent], after)]
        )
        for work in works:
            work.wait()
        chunks[received].copy_(incoming) if phase else chunks[received].add_(incoming)
print(bool((x == world_size * (world_size + 1) / 2).all()))
