# reported: reduce | (?s)int64.*float32|float32.*int64 | dist.recv(other, rank) ;; dist.send(tensor, dst)
def reduce(tensor: torch.Tensor, dst: int) -> None:
    if dist.get_rank() != dst:
        dist.send(tensor, dst)
        return
    for rank in range(dist.get_world_size()):
        if rank != dst:
            other = torch.zeros(len(tensor))
            dist.recv(other, rank)
            tensor += other
