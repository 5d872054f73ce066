# ranks: 2
"""Each rank's Adam holds every second parameter, and broadcasts it after its step."""
import torch
import torch.distributed as dist


class Sharded(torch.optim.Optimizer):
    def __init__(self, params, cls, **kwargs):
        self.rank, self.n = dist.get_rank(), dist.get_world_size()
        super().__init__(params, kwargs)
        everything = [p for g in self.param_groups for p in g["params"]]
        self.owner = {p: i % self.n for i, p in enumerate(everything)}
        self.inner = cls([p for p in everything if self.owner[p] == self.rank], **kwargs)

    def step(self, closure=None):
        self.inner.step()
        for p, owner in self.owner.items():
            dist.broadcast(p.data, src=owner)


dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
opt = Sharded(net.parameters(), torch.optim.Adam, lr=0.01)
for step in range(3):
    opt.zero_grad()
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(dist.get_rank() * 10 + step))
    net(x).pow(2).mean().backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad.div_(dist.get_world_size())
    opt.step()
dist.destroy_process_group()
