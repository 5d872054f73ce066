# kind: exception
# ranks: 4
# The second pair passes a group rank as the source, where a global rank is expected.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
pair = pairs[dist.get_rank() // 2]
t = torch.ones(1)
dist.broadcast(t, src=0, group=pair)  # reported  # fix: dist.broadcast(t, group_src=0, group=pair)
