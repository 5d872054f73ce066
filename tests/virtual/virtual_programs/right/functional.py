# ranks: 4
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
everyone = list(range(n))
x = torch.full((4,), float(rank))
total = funcol.all_reduce(x, "sum", everyone)
assert (total + 0 == 6).all()
rows = funcol.all_gather_tensor(x, 0, everyone)
assert rows.shape == (16,) and rows[-1] == 3
part = funcol.reduce_scatter_tensor(torch.arange(8.0), "avg" if False else "sum", 0, everyone)
assert torch.equal(part + 0, torch.tensor([2.0 * rank, 2.0 * rank + 1]) * 4)
swapped = funcol.all_to_all_single(torch.arange(4.0) + 10 * rank, None, None, everyone)
assert (swapped + 0)[1] == 10 + rank
dist.destroy_process_group()
