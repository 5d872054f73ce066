# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === double_buffer, 2 ranks
# Compute continues in a second buffer while a message is pending.
peer = 1 - rank
buffers = [torch.zeros(64), torch.zeros(64)]
out = torch.full((64,), float(rank))
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

# === overlap_async, 2 ranks
# Gradients are averaged while backward still runs: a hook of each parameter, and one wait for all of them.
class Overlapped(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.handles = module, []
        for p in module.parameters():
            dist.broadcast(p.data, 0)
            p.register_post_accumulate_grad_hook(self.hook)

    def hook(self, p):
        p.grad.div_(dist.get_world_size())
        self.handles.append(dist.all_reduce(p.grad, async_op=True))

    def forward(self, x):
        return self.module(x)

    def finish_gradient_synchronization(self):
        for h in self.handles:
            h.wait()
        self.handles.clear()

model = Overlapped(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1)))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
g = torch.Generator().manual_seed(dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(4, 8, generator=g)).mean().backward()
    model.finish_gradient_synchronization()
    opt.step()

# === pipeline_1f1b, 2 ranks
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

torch.manual_seed(rank)
module = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
stage = PipelineStage(module, rank, world, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda out, target: (out - target).pow(2).mean())
opt = torch.optim.SGD(module.parameters(), lr=0.1)
torch.manual_seed(11)
for _ in range(2):
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    opt.zero_grad()
    if rank == 0:
        schedule.step(x)
    else:
        losses = []
        schedule.step(target=y, losses=losses)
    opt.step()

# === pipeline_by_hand, 3 ranks
# GPipe in thirty lines: all forwards, then all backwards.
torch.manual_seed(rank)
layer = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(layer.parameters(), lr=0.1)
MICRO = 4

def forward(i):
    if rank == 0:
        x = torch.full((2, 4), float(i))
    else:
        x = torch.empty(2, 4)
        dist.recv(x, src=rank - 1)
        x.requires_grad_()
    y = layer(x)
    if rank < world - 1:
        dist.send(y.detach(), dst=rank + 1)
    return x, y

def backward(x, y):
    if rank == world - 1:
        y.mean().div(MICRO).backward()
    else:
        grad = torch.empty_like(y)
        dist.recv(grad, src=rank + 1)
        y.backward(grad)
    if rank > 0:
        dist.send(x.grad, dst=rank - 1)

for step in range(2):
    opt.zero_grad()
    outputs = [forward(i) for i in range(MICRO)]
    for x, y in outputs:
        backward(x, y)
    opt.step()

# === ring_attention, 4 ranks
# Attention over a sequence that is split over ranks: keys and values go round, softmax is merged by its log-sum-exp.
def rotate(*tensors):
    rank, n = dist.get_rank(), dist.get_world_size()
    arriving = [torch.empty_like(t) for t in tensors]
    ops = []
    for t, a in zip(tensors, arriving):
        ops.append(dist.P2POp(dist.isend, t.contiguous(), (rank + 1) % n))
        ops.append(dist.P2POp(dist.irecv, a, (rank - 1) % n))
    for req in dist.batch_isend_irecv(ops):
        req.wait()
    return arriving

def ring_attention(q, k, v):
    out, lse = None, None
    for step in range(dist.get_world_size()):
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        part_lse = scores.logsumexp(-1, keepdim=True)
        part = (scores - part_lse).exp() @ v
        if out is None:
            out, lse = part, part_lse
        else:
            both = torch.logaddexp(lse, part_lse)
            out = out * (lse - both).exp() + part * (part_lse - both).exp()
            lse = both
        if step < dist.get_world_size() - 1:
            k, v = rotate(k, v)
    return out

rank, n = dist.get_rank(), dist.get_world_size()
q, k, v = (torch.randn(2, 4 * n, 8, dtype=torch.float64) for _ in range(3))
mine = slice(4 * rank, 4 * (rank + 1))
got = ring_attention(q[:, mine], k[:, mine], v[:, mine])
want = torch.nn.functional.scaled_dot_product_attention(q, k, v)[:, mine]
torch.testing.assert_close(got, want)
