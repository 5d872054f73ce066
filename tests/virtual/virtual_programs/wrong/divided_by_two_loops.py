# kind: averaged twice
# ranks: 4
# Two loops divide the reduced gradients. The loss itself is not divided for another reason.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(4, 4)).square().mean().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    for p in model.parameters():  # fix:
        p.grad /= dist.get_world_size()  # fix:
    opt.step()  # reported: 0-3
