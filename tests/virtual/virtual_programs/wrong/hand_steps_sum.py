# kind: sum not averaged
# ranks: 3
# A program without an optimizer sums gradients over ranks and never divides them.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
w, bias = torch.zeros(4, requires_grad=True), torch.zeros(1, requires_grad=True)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    x = torch.randn(16, 4)
    (x @ w + bias - x.sum(1)).square().mean().backward()
    for p in (w, bias):
        dist.all_reduce(p.grad)  # reported: 0-2
        # fix: p.grad /= dist.get_world_size()
    with torch.no_grad():
        for p in (w, bias):
            p -= 0.1 * p.grad
            p.grad = None
dist.destroy_process_group()
