# ranks: 4
# options: --gpu
"""Tensors and modules go to the rank's GPU and back in many ways, know where they are, and are copies where they move."""
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
number = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(number)
device = torch.device("cuda", number)
here = torch.ones(3)
on_gpu = here.cuda()
on_gpu.add_(1)
assert here.tolist() == [1, 1, 1] and here.device.type == "cpu" and on_gpu.device == device
back = on_gpu.cpu()
back.add_(1)
assert on_gpu.tolist() == [2, 2, 2] and on_gpu.is_cuda and not back.is_cuda
module = nn.Linear(3, 2)
assert next(module.parameters()).is_cpu
for move, is_there in ((lambda: module.to(device), True), (module.cpu, False), (module.cuda, True),
                       (lambda: module.to("cpu"), False), (lambda: module.to(number), True)):  # fmt: skip
    move()
    assert module.weight.is_cuda is is_there
x = torch.randn(4, 3).to(device)
module(x).sum().backward()
with torch.autocast("cuda", dtype=torch.bfloat16):
    out = module(x)
with torch.device("cuda"):
    within = torch.zeros(3)
torch.set_default_device("cuda")
as_default, layer = torch.arange(4), nn.Linear(2, 2)
torch.set_default_device(None)
assert torch.zeros(1).is_cpu and torch.from_numpy(np.ones(3)).is_cpu
generated = torch.rand(3, device="cuda", generator=torch.Generator(device="cuda").manual_seed(3))
loss = torch.tensor(1.0, device=x.device)
for tensor in (module.weight.grad, out.detach(), within, as_default, layer.weight.data, loss, torch.stack([loss, loss]),
            torch.zeros_like(x), x.new_zeros(2), torch.tensor(loss.item()).to(device), x @ x.T, generated,
            torch.from_numpy(np.ones(3)).to("cuda", non_blocking=True)):  # fmt: skip
    assert tensor.device == device
    dist.all_reduce(tensor)
leaf = torch.randn(3, requires_grad=True)
moved = leaf.cuda()
moved.sum().backward()
assert leaf.grad is not None and leaf.grad.is_cpu and not moved.is_leaf
gathered = [None] * dist.get_world_size()
dist.all_gather_object(gathered, x.shape)
dist.barrier()
with torch.cuda.device(0):
    assert torch.zeros(1, device="cuda").device.index == 0
assert torch.cuda.current_device() == number
