# ranks: 4
import time
import torch
import torch.distributed as dist

def timed(t, trials=3, warm_up=2):
    for _ in range(warm_up):
        dist.all_reduce(t)
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(trials):
        dist.all_reduce(t)
    seconds = torch.tensor([(time.perf_counter() - begin) / trials])
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return seconds.item()

dist.init_process_group("gloo")
n = dist.get_world_size()
for size in (2**10, 2**14):
    t = torch.ones(size)
    s = timed(t)
    if dist.get_rank() == 0 and s:
        algbw = t.numel() * t.element_size() / s
        print(f"{size:8d}  {s * 1e6:9.1f} us  algbw {algbw / 1e9:.3f} GB/s  busbw {algbw * 2 * (n - 1) / n / 1e9:.3f} GB/s")
dist.destroy_process_group()
