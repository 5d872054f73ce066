import torch
import torch.distributed as dist


def make_groups(racks: list[list[int]]) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    mine = []
    for groups in (racks, [list(ranks) for ranks in zip(*racks, strict=True)]):
        for ranks in groups:
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                mine.append(group)
    return mine[0], mine[1]


def hierarchical_all_reduce(tensor: torch.Tensor, inside: dist.ProcessGroup, across: dist.ProcessGroup) -> None:
    part = torch.empty(tensor.numel() // dist.get_world_size(inside), dtype=tensor.dtype)
    dist.reduce_scatter_tensor(part, tensor, group=inside)
    dist.all_reduce(part, group=across)
    dist.all_gather_into_tensor(tensor, part, group=inside)
