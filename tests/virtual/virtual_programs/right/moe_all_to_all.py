# ranks: 4
"""An expert a rank: tokens go where a router sends them, and come back in their order."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
tokens = torch.randn(10, 4)
expert = torch.randint(0, n, (10,))
order = expert.argsort(stable=True)
sent = torch.bincount(expert, minlength=n)
received = torch.empty_like(sent)
dist.all_to_all_single(received, sent)
arrived = torch.empty(int(received.sum()), 4)
dist.all_to_all_single(arrived, tokens[order], received.tolist(), sent.tolist())
done = arrived * (rank + 1)
back = torch.empty_like(tokens)
dist.all_to_all_single(back, done, sent.tolist(), received.tolist())
out = torch.empty_like(tokens)
out[order] = back
assert torch.allclose(out, tokens * (expert + 1).unsqueeze(1))
