# ranks: 3
# Without an optimizer, gradients are summed and the learning rate is divided by the number of ranks.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rate = 0.1 / dist.get_world_size()
w = torch.zeros(4, requires_grad=True)
torch.manual_seed(dist.get_rank())
for _ in range(4):
    (torch.randn(8, 4) @ w - 1).square().mean().backward()
    dist.all_reduce(w.grad)
    with torch.no_grad():
        w -= rate * w.grad
    w.grad = None
dist.destroy_process_group()
