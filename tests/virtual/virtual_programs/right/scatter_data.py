# ranks: 3
# Only rank 0 reads the data; the others are sent their shards.
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
shard = torch.empty(4, 2)
if rank == 0:
    data = torch.arange(24.0).view(12, 2)
    dist.scatter(shard, [c.contiguous() for c in data.chunk(n)], src=0)
else:
    dist.scatter(shard, src=0)
weight = torch.ones(2, requires_grad=True)
(shard @ weight).mean().backward()
dist.all_reduce(weight.grad, op=dist.ReduceOp.SUM)
weight.grad /= n
assert weight.grad.tolist() == [11.0, 12.0]
