# kind: wrong all_reduce
# ranks: 4
# A ring all_reduce stops after its first half, so each rank has only one correct chunk.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
parts = list(torch.randn(world * 3).chunk(world))
for step in range(world - 1):
    out, into = parts[(rank - step) % world], torch.empty(3)
    works = [dist.isend(out, (rank + 1) % world), dist.irecv(into, (rank - 1) % world)]
    for work in works:
        work.wait()
    parts[(rank - step - 1) % world] = parts[(rank - step - 1) % world] + into
# fix: for step in range(world - 1):
    # fix: out, into = parts[(rank + 1 - step) % world], torch.empty(3)
    # fix: works = [dist.isend(out, (rank + 1) % world), dist.irecv(into, (rank - 1) % world)]
    # fix: for work in works: work.wait()
    # fix: parts[(rank - step) % world] = into
result = torch.cat(parts)  # reported: 0-3
