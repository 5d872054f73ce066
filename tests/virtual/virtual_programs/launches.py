"""A device that waits for its host, one that does not, and a host that reads a computed value."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
x, large = torch.ones(8).cuda(), torch.ones(1 << 26).cuda()
dist.barrier()
begin = time.perf_counter()
for _ in range(100):
    x.add_(1)
launched = time.perf_counter() - begin
torch.cuda.synchronize()
done = time.perf_counter() - begin
large.add_(1)
ahead = time.perf_counter() - begin - done
value = large[0].item()
read = time.perf_counter() - begin - done
work = dist.all_reduce(large, async_op=True)
for _ in range(10):
    x.add_(1)
work.wait()
x.add_(1)
print(launched, done, ahead, read)
dist.destroy_process_group()
