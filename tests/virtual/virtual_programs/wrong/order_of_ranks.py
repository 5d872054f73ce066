# kind: rank order
# ranks: 4
# new_group sorts its ranks: the first row belongs to rank 0, not to rank 3.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
backwards = dist.new_group([3, 2, 1, 0])  # fix: backwards = dist.new_group([0, 1, 2, 3])
mine = torch.tensor([dist.get_rank()])
rows = [torch.zeros_like(mine) for _ in range(4)]
dist.all_gather(rows, mine, group=backwards)  # reported: 0-3
print("last first:", torch.cat(rows).tolist())
