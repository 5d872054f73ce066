# reported: broadcast | deadlock|rank \d | elsewhere: for peer in range(dist.get_world_size() - 1):
def broadcast(tensor: torch.Tensor, src: int) -> None:
    if dist.get_rank() == src:
        for peer in range(dist.get_world_size() - 1):
            if peer != src:
                dist.send(tensor, peer)
    else:
        dist.recv(tensor, src)
