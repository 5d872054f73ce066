# kind: buffer in use
# ranks: 2
# The first half of a flat buffer is being reduced while the loss is written into the last element.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
flat = torch.randn(2, 4099)
grads, rest = flat
for step in range(2):
    work = dist.all_reduce(grads, async_op=True)  # reported: 0-1
    rest.mul_(0.5)
    grads[-1] = float(step)  # fix:
    work.wait()
    # fix: grads[-1] = float(step)
    dist.all_reduce(rest)
