# kind: missing wait
# ranks: 2
# A message, its answer and three reductions are posted, and no handle is kept.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
peer = 1 - dist.get_rank()
got = torch.zeros(3)
handles = [dist.isend(torch.ones(3), peer)]  # reported: 0-1
handles.append(dist.irecv(got, peer))  # reported: 0-1
handles += [dist.all_reduce(torch.ones(size), async_op=True) for size in (1, 2, 3)]  # reported: 0-1
# fix: for handle in handles: handle.wait()
