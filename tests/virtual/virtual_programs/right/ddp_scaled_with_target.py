# ranks: 2
# load_state_dict(assign=True) before DDP, LoRA-like adapters before DDP, EMA by lerp, two models, no_sync
import copy, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
net.load_state_dict(copy.deepcopy(net.state_dict()), assign=True)
net[0].requires_grad_(False)
model = DDP(net)
target = copy.deepcopy(net).requires_grad_(False)
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
torch.manual_seed(dist.get_rank() + 5)
for step in range(6):
    x = torch.randn(4, 6)
    with torch.no_grad():
        rollout = model(x)
    with model.no_sync():
        scaler.scale((model(x) - target(x)).square().mean() / 2).backward()
    scaler.scale((model(torch.randn(4, 6)) - 1).square().mean() / 2).backward()
    scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
    with torch.no_grad():
        for a, b in zip(target.parameters(), net.parameters()):
            a.lerp_(b, 0.1)
