# kind: buffer in use
# ranks: 2
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    buffer = torch.zeros(1000)
    handles = []
    for i in range(3):
        buffer.fill_(i)  # one buffer for all three messages
        handles.append(dist.isend(buffer, 1))  # reported: 0  # fix: handles.append(dist.isend(buffer.clone(), 1))
    for h in handles:
        h.wait()
else:
    got = torch.empty(1000)
    for i in range(3):
        dist.recv(got, 0)
