# kind: missing message
# ranks: 3
# The first stage sends one micro-batch less than the others expect.
import torch, torch.distributed as dist
dist.init_process_group("gloo")
me, n = dist.get_rank(), dist.get_world_size()
x = torch.zeros(4)
micro_batches = 3 if me == 0 else 4  # fix: micro_batches = 4
for _ in range(micro_batches):
    if me > 0:
        dist.recv(x, me - 1)  # reported: 1-2
    if me < n - 1:
        dist.send(x, me + 1)
