# reported: hierarchical_all_reduce | holds rank 0's | whole = torch.empty_like(tensor) ;; dist.all_gather_into_tensor(whole ;; return whole
def hierarchical_all_reduce(tensor, inside, across):
    part = torch.empty(tensor.numel() // dist.get_world_size(inside))
    dist.reduce_scatter_tensor(part, tensor, group=inside)
    dist.all_reduce(part, group=across)
    whole = torch.empty_like(tensor)
    dist.all_gather_into_tensor(whole, part, group=inside)
    return whole
