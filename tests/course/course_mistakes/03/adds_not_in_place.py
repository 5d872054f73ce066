# reported: reduce | holds rank 0's | tensor = tensor + other
def reduce(tensor: torch.Tensor, dst: int) -> None:
    if dist.get_rank() == dst:
        other = torch.empty_like(tensor)
        for peer in range(dist.get_world_size()):
            if peer != dst:
                dist.recv(other, peer)
                tensor = tensor + other
    else:
        dist.send(tensor, dst)
