# ranks: 4
# A 2 x 2 grid: every rank creates all groups and keeps its own.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
row, column = rows[rank // 2], columns[rank % 2]
x = torch.tensor([float(rank)])
dist.all_reduce(x, group=row)
dist.all_reduce(x, group=column)
assert x.item() == 6
if rank in (0, 3):
    pass
diagonal = dist.new_group(ranks=[0, 3])
if rank in (0, 3):
    y = torch.tensor([rank])
    dist.broadcast(y, src=3, group=diagonal)
    assert y.item() == 3
dist.barrier()
