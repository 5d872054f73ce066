# kind: missing wait
# ranks: 2
# Hooks average gradients, and no rank waits for them before the step.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
# fix: handles = []

def average(p):
    dist.all_reduce(p.grad.div_(2), async_op=True)  # reported: 0-1  # fix: handles.append(dist.all_reduce(p.grad.div_(2), async_op=True))

for p in net.parameters():
    p.register_post_accumulate_grad_hook(average)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(2):
    opt.zero_grad()
    net(torch.randn(2, 4)).mean().backward()
    # fix: while handles: handles.pop().wait()
    opt.step()
