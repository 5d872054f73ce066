# ranks: 2
# Compute continues in a second buffer while a message is pending.
import torch, torch.distributed as dist
dist.init_process_group("gloo")
r = dist.get_rank()
peer = 1 - r
buffers = [torch.zeros(64), torch.zeros(64)]
out = torch.full((64,), float(r))
total = torch.zeros(64)
req_in = dist.irecv(buffers[0], peer)
req_out = dist.isend(out, peer)
for i in range(3):
    req_in.wait()
    req_out.wait()
    now = buffers[i % 2]
    if i < 2:
        req_in = dist.irecv(buffers[(i + 1) % 2], peer)
        out = now + 1
        req_out = dist.isend(out, peer)
    total += now
assert torch.all(total > 0)
