# ranks: 3
import torch, torch.distributed as dist

class Average:
    def __init__(self):
        self.total = torch.zeros(2)
    def update(self, value, n=1):
        self.total += torch.tensor([value * n, n])
    def on_rank0(self):
        t = self.total.clone()
        dist.reduce(t, dst=0, op=dist.ReduceOp.SUM)
        return (t[0] / t[1]).item() if dist.get_rank() == 0 else None

dist.init_process_group("gloo")
loss = Average()
for step in range(5):
    loss.update(1.0 / (step + 1) + dist.get_rank(), 4)
mean = loss.on_rank0()
if dist.get_rank() == 0:
    print(f"mean loss {mean:.3f}")
dist.barrier()
