# kind: sum not averaged
# ranks: 2
# Each gradient's all_reduce starts as soon as the gradient exists, and is awaited before the step.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
handles = []
for p in model.parameters():
    p.register_post_accumulate_grad_hook(lambda p: handles.append(dist.all_reduce(p.grad, async_op=True)))  # reported: 0-1  # fix: p.register_post_accumulate_grad_hook(lambda p: handles.append(dist.all_reduce(p.grad.div_(2), async_op=True)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    x = torch.randn(8, 6)
    torch.nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long()).backward()
    while handles:
        handles.pop().wait()
    optimizer.step()
