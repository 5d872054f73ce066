# ranks: 4
"""Predictions and labels that are gathered alike, and predictions that are put in the order of the data set."""
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
world = dist.get_world_size()
torch.manual_seed(0)
data = TensorDataset(torch.randn(30, 5), torch.randint(0, 2, (30,)))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
model = torch.nn.Linear(5, 2)
with torch.no_grad():
    batches = [(model(x).argmax(1), y) for x, y in loader]
indices, wanted = (torch.cat(parts) for parts in zip(*batches))
gathered = [[torch.empty_like(column) for _ in range(world)] for column in (indices, wanted)]
dist.all_gather(gathered[0], indices)
dist.all_gather(gathered[1], wanted)
accuracy = (torch.cat(gathered[0]) == torch.cat(gathered[1])).float().mean()
in_order = torch.stack(gathered[0], 1).flatten()[: len(data)]
assert (in_order == model(data.tensors[0]).argmax(1)).all()
dist.destroy_process_group()
