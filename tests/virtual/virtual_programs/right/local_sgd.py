# ranks: 2
# Each rank trains alone; weights are averaged every second step.
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
torch.manual_seed(dist.get_rank())
for step in range(6):
    opt.zero_grad()
    net(torch.randn(4, 4)).square().mean().backward()
    opt.step()
    if step % 2:
        with torch.no_grad():
            for p in net.parameters():
                dist.all_reduce(p)
                p /= dist.get_world_size()
