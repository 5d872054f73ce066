# kind: deadlock
# ranks: 4
# Both pairs send across, but receive from their neighbors.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
across, neighbour = (rank + 2) % 4, rank ^ 1
got = torch.empty(5)
handle = dist.isend(torch.rand(5), across)
request = dist.irecv(got, neighbour)  # reported: 0-3  # fix: request = dist.irecv(got, across)
request.wait()
handle.wait()
