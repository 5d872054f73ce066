# kind: buffer in use
# ranks: 4
# Statistics are updated while their all_reduce is pending.
import torch, torch.distributed as dist
dist.init_process_group("gloo")
counts = torch.zeros(8)
for i in range(3):
    counts += 1
    work = dist.all_reduce(counts, async_op=True)  # reported: 0-3
    counts[i] += 1  # fix:
    work.wait()
    # fix: counts[i] += 1
