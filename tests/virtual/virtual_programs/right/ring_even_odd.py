# ranks: 4
# Pass a token round with blocking calls: even ranks send first.
import torch, torch.distributed as dist
dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
tok = torch.tensor([r])
got = torch.zeros_like(tok)
for _ in range(n):
    if r % 2 == 0:
        dist.send(tok, (r + 1) % n); dist.recv(got, (r - 1) % n)
    else:
        dist.recv(got, (r - 1) % n); dist.send(tok, (r + 1) % n)
    tok = got.clone()
assert tok.item() == r
