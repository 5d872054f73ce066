# reported: all_reduce | rank 1.*holds rank 1's | return ;; if dist.get_rank() == dist.get_world_size() - 1:
def all_reduce(tensor: torch.Tensor) -> None:
    if dist.get_rank() == dist.get_world_size() - 1:
        return
    reduce(tensor, 0)
    broadcast(tensor, 0)
