# kind: averaged twice
# ranks: 4
import torch, torch.distributed as dist

dist.init_process_group("gloo")
n = dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(2):
    opt.zero_grad()
    loss = model(torch.randn(4, 4)).square().mean()
    (loss / n).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad.div_(n)  # fix:
    opt.step()  # reported: 0-3
