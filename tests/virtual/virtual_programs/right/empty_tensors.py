# ranks: 2
# options: --strict
"""Tensors without elements, in flight beside others of the kind: they share no memory."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
nothing, other = torch.zeros(0), torch.zeros(0)
handle = dist.all_reduce(nothing, async_op=True)
assert other.tolist() == (other + 1).tolist() == []
handle.wait()
handles = [dist.irecv(torch.zeros(0), 1 - dist.get_rank(), tag=tag) for tag in range(2)]
handles += [dist.isend(torch.zeros(0, 3), 1 - dist.get_rank(), tag=tag) for tag in range(2)]
for handle in handles:
    handle.wait()
dist.reduce(nothing, 0)
print(torch.zeros(0).sum().item())
