# kind: buffer in use
# ranks: 2
# options: --strict
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.zeros(100)
peer = 1 - dist.get_rank()
out = dist.isend(torch.ones(100), peer)
request = dist.irecv(x, peer)
print("sum", x.sum().item())  # reported: 0-1  # fix:
request.wait()
# fix: print("sum", x.sum().item())
out.wait()
