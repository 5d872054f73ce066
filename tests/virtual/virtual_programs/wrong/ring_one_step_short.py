# kind: parameter mismatch
# ranks: 4
# The second half of the ring from exercise 3 ends one step too early.
import torch, torch.distributed as dist

def all_reduce_(t):
    me, n = dist.get_rank(), dist.get_world_size()
    parts = t.view(n, -1)
    for phase, steps in (("reduce", n - 1), ("gather", n - 2)):  # fix: for phase, steps in (("reduce", n - 1), ("gather", n - 1)):
        for s in range(steps):
            out = (me - s + (phase == "gather")) % n
            inp = (out - 1) % n
            got = torch.empty_like(parts[inp])
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, parts[out].clone(), (me + 1) % n), dist.P2POp(dist.irecv, got, (me - 1) % n)])
            [w.wait() for w in works]
            parts[inp] = parts[inp] + got if phase == "reduce" else got

dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8, bias=False), torch.nn.Linear(8, 4, bias=False))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(2):
    net(torch.randn(3, 4)).pow(2).mean().backward()
    for p in net.parameters():
        all_reduce_(p.grad)
        p.grad /= dist.get_world_size()
    opt.step()  # reported: 0-1, 3; 2
    opt.zero_grad()
