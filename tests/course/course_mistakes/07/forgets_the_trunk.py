# reported: hierarchical_all_reduce | holds rank 0's and rank 2's | dist.reduce_scatter_tensor(part ;; dist.all_gather_into_tensor(tensor
def hierarchical_all_reduce(tensor, inside, across):
    part = torch.empty(tensor.numel() // dist.get_world_size(inside))
    dist.reduce_scatter_tensor(part, tensor, group=inside)
    dist.all_gather_into_tensor(tensor, part, group=inside)
