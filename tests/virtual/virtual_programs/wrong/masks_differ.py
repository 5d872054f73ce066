# kind: buffer mismatch
# ranks: 2
# Each rank draws its own pruning mask, and DDP is told not to broadcast buffers.
import torch, torch.distributed as dist
class Pruned(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)
        self.register_buffer("mask", (torch.rand(6, 6) > 0.5).float())
    def forward(self, x):
        return torch.nn.functional.linear(x, self.linear.weight * self.mask, self.linear.bias)

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(Pruned(), broadcast_buffers=False, init_sync=False)  # fix: model = torch.nn.parallel.DistributedDataParallel(Pruned())
model.eval()
print(model(torch.ones(1, 6)).sum().item())  # reported: 0; 1
