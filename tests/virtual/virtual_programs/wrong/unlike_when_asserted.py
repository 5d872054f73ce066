# kind: parameter mismatch
# ranks: 2
# Gradients are never averaged, and the program itself asserts that weights are equal.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    # fix: for p in model.parameters(): dist.all_reduce(p.grad); p.grad /= dist.get_world_size()
    optimizer.step()  # reported: 0; 1
everyone = [torch.empty(2, 4) for _ in range(dist.get_world_size())]
dist.all_gather(everyone, model.weight.data)
assert torch.equal(everyone[0], everyone[1]), "weights differ"
