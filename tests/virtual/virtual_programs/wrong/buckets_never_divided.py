# kind: sum not averaged
# ranks: 2
# Gradients are summed in flat buckets of two parameters each.
import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(5, 5) for _ in range(3)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
parameters = list(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 5)).square().mean().backward()
    for begin in range(0, len(parameters), 2):
        bucket = [p.grad for p in parameters[begin : begin + 2]]
        flat = _flatten_dense_tensors(bucket)
        dist.all_reduce(flat)  # reported: 0-1
        # fix: flat /= dist.get_world_size()
        for gradient, part in zip(bucket, _unflatten_dense_tensors(flat, bucket)):
            gradient.copy_(part)
    optimizer.step()
