# reported: broadcast | must hold rank 0's at .* and holds rank 1's | dist.recv(other, src) ;; tensor = other
def broadcast(tensor: torch.Tensor, src: int) -> None:
    rank = dist.get_rank()
    if rank == src:
        for peer in range(dist.get_world_size()):
            if peer != rank:
                dist.send(tensor, peer)
    else:
        other = torch.empty_like(tensor)
        dist.recv(other, src)
        tensor = other
