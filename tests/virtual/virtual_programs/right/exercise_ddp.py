# ranks: 2
# exercise 4: DDP by hand. Broadcast once, average gradients after each backward.
import torch
import torch.distributed as dist


class MyDDP(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for p in module.parameters():
            dist.broadcast(p.data, src=0)

    def forward(self, *args):
        return self.module(*args)

    def finish(self):
        n = dist.get_world_size()
        for p in self.module.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
                p.grad /= n


dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)  # unlike on purpose: the broadcast must mend it
net = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
model = MyDDP(net)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(8, 6, generator=torch.Generator().manual_seed(9))
for step in range(3):
    opt.zero_grad()
    model(x.chunk(n)[rank]).pow(2).mean().backward()
    model.finish()
    opt.step()
for p in model.parameters():
    other = [torch.empty_like(p) for _ in range(n)]
    dist.all_gather(other, p.detach())
    assert all(torch.equal(o, p) for o in other)
dist.destroy_process_group()
