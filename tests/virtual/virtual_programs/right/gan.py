# ranks: 2
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
G, D = DDP(nn.Linear(2, 4)), DDP(nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(), nn.Linear(4, 1)))
g_opt, d_opt = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
bce = nn.BCEWithLogitsLoss()
torch.manual_seed(1 + dist.get_rank())
for step in range(4):
    real, noise = torch.randn(8, 4), torch.randn(8, 2)
    d_opt.zero_grad()
    fake = G(noise)
    scores = D(torch.cat([real, fake.detach()]))
    bce(scores, torch.cat([torch.ones(8, 1), torch.zeros(8, 1)])).backward()
    d_opt.step()
    if step % 2:  # the generator learns every second step
        g_opt.zero_grad()
        bce(D(G(noise)), torch.ones(8, 1)).backward()
        g_opt.step()
dist.destroy_process_group()
