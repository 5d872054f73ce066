# reported: hierarchical_all_reduce | rank 1.*holds rank 1's | elsewhere: if dist.get_rank() % 2 == 0: ;; dist.all_gather_into_tensor(
def hierarchical_all_reduce(tensor, inside, across):
    part = torch.empty(tensor.numel() // dist.get_world_size(inside), dtype=tensor.dtype)
    dist.reduce_scatter_tensor(part, tensor, group=inside)
    dist.all_reduce(part, group=across)
    if dist.get_rank() % 2 == 0:
        dist.all_gather_into_tensor(tensor, part, group=inside)
