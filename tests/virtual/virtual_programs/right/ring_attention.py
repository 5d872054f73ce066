# ranks: 4
"""Attention over a sequence that is split over ranks: keys and values go round, softmax is merged by its log-sum-exp."""
import torch
import torch.distributed as dist


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


dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
q, k, v = (torch.randn(2, 4 * n, 8, dtype=torch.float64) for _ in range(3))
mine = slice(4 * rank, 4 * (rank + 1))
got = ring_attention(q[:, mine], k[:, mine], v[:, mine])
want = torch.nn.functional.scaled_dot_product_attention(q, k, v)[:, mine]
torch.testing.assert_close(got, want)
dist.destroy_process_group()
