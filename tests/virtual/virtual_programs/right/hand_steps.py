# ranks: 2
# Training without an optimizer; each rank also has its own tensor that learns to fool the model.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
weight, bias = torch.randn(5, 3, requires_grad=True), torch.zeros(3, requires_grad=True)
torch.manual_seed(1 + dist.get_rank())
for _ in range(4):
    x = torch.randn(8, 5)
    (x @ weight + bias).square().mean().backward()
    with torch.no_grad():
        for p in (weight, bias):
            dist.all_reduce(p.grad)
            p -= 0.1 / dist.get_world_size() * p.grad
            p.grad = None
noise = torch.randn(2, 5, requires_grad=True)
for _ in range(3):
    ((noise @ weight.detach()).square().mean() + noise.square().mean()).backward()
    largest = noise.grad.abs().max()
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    noise.data -= 0.1 * noise.grad / largest
    noise.grad = None
