# kind: wrong all_reduce
# ranks: 3
# A half-finished ring in place, in views of one tensor that is divided as if it were complete.
import torch
import torch.distributed as dist


def ring(t):
    rank, world = dist.get_rank(), dist.get_world_size()
    chunks = t.view(world, -1)
    got = torch.empty_like(chunks[0])
    for step in range(world - 1):
        sending = dist.isend(chunks[(rank - step) % world].clone(), (rank + 1) % world)
        dist.recv(got, (rank - 1) % world)
        sending.wait()
        chunks[(rank - step - 1) % world] += got
    # fix: for step in range(world - 1):
        # fix: sending = dist.isend(chunks[(rank + 1 - step) % world].clone(), (rank + 1) % world)
        # fix: dist.recv(got, (rank - 1) % world)
        # fix: sending.wait()
        # fix: chunks[(rank - step) % world] = got
    return t


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
mean = ring(torch.randn(12))
mean /= dist.get_world_size()  # reported: 0-2
