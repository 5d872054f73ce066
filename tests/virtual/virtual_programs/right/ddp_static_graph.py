# ranks: 2
import torch, torch.distributed as dist
from torch.utils.checkpoint import checkpoint
from torch.nn.parallel import DistributedDataParallel as DDP

class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))
    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(lambda y, l=layer: torch.relu(l(y)), x, use_reentrant=False)
        return x

dist.init_process_group("gloo")
model = DDP(Deep(), static_graph=True)
opt = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.rand(2, 8)).sum().backward()
    opt.step()
    opt.zero_grad()
dist.destroy_process_group()
