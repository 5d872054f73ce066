# kind: reduced loss
# ranks: 2
# all_reduce is not differentiable, so each rank's gradients are its own.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(2):
    opt.zero_grad()
    loss = model(torch.randn(4, 4)).square().mean()
    dist.all_reduce(loss)  # fix:
    loss = loss / dist.get_world_size()  # fix:
    loss.backward()  # reported: 0-1
    # fix: for p in model.parameters(): dist.all_reduce(p.grad); p.grad /= dist.get_world_size()
    opt.step()
