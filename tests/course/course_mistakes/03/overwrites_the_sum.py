# reported: reduce | holds rank 1's | dist.recv(tensor, peer)
def reduce(tensor: torch.Tensor, dst: int) -> None:
    if dist.get_rank() == dst:
        for peer in range(dist.get_world_size()):
            if peer != dst:
                dist.recv(tensor, peer)
    else:
        dist.send(tensor, dst)
