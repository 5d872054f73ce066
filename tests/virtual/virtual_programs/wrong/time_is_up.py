# kind: early exit
# ranks: 2
# Every rank looks at its own clock.
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
begin = time.time()
t = torch.ones(1)
while time.time() - begin < 10:  # fix: while True:
    time.sleep(4.0 if dist.get_rank() else 3.0)
    dist.all_reduce(t)  # reported: 0
    # fix: late = torch.tensor(float(time.time() - begin > 7))
    # fix: dist.all_reduce(late)
    if dist.get_rank() and time.time() - begin > 7:  # fix: if late:
        break
