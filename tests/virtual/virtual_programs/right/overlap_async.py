# ranks: 2
"""Gradients are averaged while backward still runs: a hook of each parameter, and one wait for all of them."""
import torch
import torch.distributed as dist


class Overlapped(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.handles = module, []
        for p in module.parameters():
            dist.broadcast(p.data, 0)
            p.register_post_accumulate_grad_hook(self.hook)

    def hook(self, p):
        p.grad.div_(dist.get_world_size())
        self.handles.append(dist.all_reduce(p.grad, async_op=True))

    def forward(self, x):
        return self.module(x)

    def finish_gradient_synchronization(self):
        for h in self.handles:
            h.wait()
        self.handles.clear()


dist.init_process_group("gloo")
model = Overlapped(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1)))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
g = torch.Generator().manual_seed(dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(4, 8, generator=g)).mean().backward()
    model.finish_gradient_synchronization()
    opt.step()
dist.destroy_process_group()
