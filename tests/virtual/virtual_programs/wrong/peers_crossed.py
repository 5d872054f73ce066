# kind: deadlock
# ranks: 4
"""Everybody sends to the right and receives from the right, so no half meets its other."""
import torch
import torch.distributed as dist

dist.init_process_group(backend="gloo")
right = (dist.get_rank() + 1) % dist.get_world_size()
out, data = torch.empty(8), torch.rand(8)
both = [dist.P2POp(dist.isend, data, right), dist.P2POp(dist.irecv, out, right)]  # fix: both = [dist.P2POp(dist.isend, data, right), dist.P2POp(dist.irecv, out, (dist.get_rank() - 1) % 4)]
for work in dist.batch_isend_irecv(both):  # reported: 0-3
    work.wait()
