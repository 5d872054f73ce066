# reported: broadcast | must hold rank 1's at .* but holds rank 0's | dist.recv(tensor, 0) ;; if dist.get_rank() == 0: ;; dist.send(tensor, peer)
def broadcast(tensor: torch.Tensor, src: int) -> None:
    if dist.get_rank() == 0:
        for peer in range(1, dist.get_world_size()):
            dist.send(tensor, peer)
    else:
        dist.recv(tensor, 0)
