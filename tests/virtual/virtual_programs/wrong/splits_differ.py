# kind: shape
# ranks: 2
# A rank sends more elements than its peer has room for.
import torch, torch.distributed as dist
dist.init_process_group("gloo")
r = dist.get_rank()
sizes_out = [[1, 3], [2, 2]][r]
sizes_in = [[1, 2], [2, 2]][r]  # fix: sizes_in = [[1, 2], [3, 2]][r]
out = torch.empty(sum(sizes_in))
dist.all_to_all_single(out, torch.ones(4), sizes_in, sizes_out)  # reported: 0; 1
