# reported: tree_broadcast | takes .* in every round | dist.send(tensor, peer) ;; dist.recv(tensor, 0)
def tree_broadcast(tensor: torch.Tensor) -> None:
    if dist.get_rank() == 0:
        for peer in range(1, dist.get_world_size()):
            dist.send(tensor, peer)
    else:
        dist.recv(tensor, 0)
