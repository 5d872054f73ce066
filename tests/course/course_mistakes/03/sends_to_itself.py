# reported: broadcast | should not be the same as the rank | dist.send(tensor, peer) ;; for peer in range(dist.get_world_size()):
def broadcast(tensor: torch.Tensor, src: int) -> None:
    if dist.get_rank() == src:
        for peer in range(dist.get_world_size()):
            dist.send(tensor, peer)
    else:
        dist.recv(tensor, src)
