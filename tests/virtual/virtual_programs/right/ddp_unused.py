# ranks: 2
# Each step uses one of the model's two heads.
import torch
import torch.distributed as dist

class TwoHeads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.heads = torch.nn.ModuleList([torch.nn.Linear(4, 1), torch.nn.Linear(4, 2)])

    def forward(self, x, head):
        return self.heads[head](torch.relu(self.body(x)))

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(TwoHeads(), find_unused_parameters=True)
opt = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    opt.zero_grad()
    x = torch.randn(3, 4) * (1 + dist.get_rank())
    model(x, step % 2).sum().backward()
    opt.step()
dist.destroy_process_group()
