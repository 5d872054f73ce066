# kind: optimizer state mismatch
# ranks: 2
# Training resumes: rank 0 loads the optimizer state, and the other ranks start without one.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(3, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
saved = {"state": {0: {"momentum_buffer": torch.ones(2, 3)}, 1: {"momentum_buffer": torch.ones(2)}}, "param_groups": opt.state_dict()["param_groups"]}
if dist.get_rank() == 0:  # fix: if True:
    opt.load_state_dict(saved)
for _ in range(2):
    opt.zero_grad()
    model(torch.ones(2, 3)).mean().backward()
    opt.step()  # reported: 0; 1
