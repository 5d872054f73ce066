# kind: message size
# ranks: 2
# The receiver omits the batch dimension.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
HIDDEN, BATCH = 6, 4
if dist.get_rank() == 0:
    activations = torch.randn(BATCH, HIDDEN)
    dist.send(activations, dst=1)  # reported: 0
else:
    buffer = torch.empty(HIDDEN)  # fix: buffer = torch.empty(BATCH, HIDDEN)
    dist.recv(buffer, src=0)  # reported: 1
