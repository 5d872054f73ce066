# kind: missing wait
# ranks: 3
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(16) * dist.get_rank()
dist.all_reduce(total, async_op=True)  # reported: 0-2  # fix: dist.all_reduce(total, async_op=True).wait()
print(total[0].item())
