# ranks: 3
# kind: parameter mismatch
"""The average of weights is loaded into the model, on rank 0 alone, and training goes on."""
import copy

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(5, 5))
opt, average = torch.optim.SGD(model.parameters(), 0.1), copy.deepcopy(model.module)
torch.manual_seed(dist.get_rank())
for step in range(4):
    x = torch.randn(8, 5)
    opt.zero_grad()
    (model(x) - x).square().mean().backward()
    opt.step()  # reported: 0; 1-2
    with torch.no_grad():
        for mean, parameter in zip(average.parameters(), model.module.parameters()):
            mean.lerp_(parameter, 0.1)
    if step == 1 and dist.get_rank() == 0:  # fix: if step == 1:
        model.module.load_state_dict(average.state_dict())
dist.destroy_process_group()
