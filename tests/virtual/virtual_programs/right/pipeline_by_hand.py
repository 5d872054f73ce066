# ranks: 3
# GPipe in thirty lines: all forwards, then all backwards.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
me, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(me)
layer = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(layer.parameters(), lr=0.1)
MICRO = 4

def forward(i):
    if me == 0:
        x = torch.full((2, 4), float(i))
    else:
        x = torch.empty(2, 4)
        dist.recv(x, src=me - 1)
        x.requires_grad_()
    y = layer(x)
    if me < n - 1:
        dist.send(y.detach(), dst=me + 1)
    return x, y

def backward(x, y):
    if me == n - 1:
        y.mean().div(MICRO).backward()
    else:
        grad = torch.empty_like(y)
        dist.recv(grad, src=me + 1)
        y.backward(grad)
    if me > 0:
        dist.send(x.grad, dst=me - 1)

for step in range(2):
    opt.zero_grad()
    outputs = [forward(i) for i in range(MICRO)]
    for x, y in outputs:
        backward(x, y)
    opt.step()
dist.destroy_process_group()
