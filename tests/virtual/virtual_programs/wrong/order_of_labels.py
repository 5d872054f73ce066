# ranks: 4
# kind: rank order
"""Predictions are gathered rank by rank, and the sampler dealt samples out one by one."""
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 5), torch.randint(0, 2, (32,)))
model = torch.nn.Linear(5, 2)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
with torch.no_grad():
    logits = torch.cat([model(x) for x, _ in loader])
everyone = [torch.empty_like(logits) for _ in range(dist.get_world_size())]
dist.all_gather(everyone, logits)
predictions = torch.cat(everyone).argmax(1)  # fix: predictions = torch.stack(everyone, 1).flatten(0, 1).argmax(1)
accuracy = (predictions == data.tensors[1]).float().mean()  # reported: 0-3
dist.destroy_process_group()
