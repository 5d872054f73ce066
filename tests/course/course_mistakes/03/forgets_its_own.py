# reported: reduce | but holds 0 | total = torch.zeros_like(tensor) ;; tensor.copy_(total)
def reduce(tensor: torch.Tensor, dst: int) -> None:
    if dist.get_rank() == dst:
        total = torch.zeros_like(tensor)
        other = torch.zeros_like(tensor)
        for peer in range(dist.get_world_size()):
            if peer != dst:
                dist.recv(other, peer)
                total += other
        tensor.copy_(total)
    else:
        dist.send(tensor, dst)
