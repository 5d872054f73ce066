# reported: halving_doubling_all_reduce | holds rank 0's | keep += other ;; window, distance = keep
def halving_doubling_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    window, distance = tensor, p // 2
    while distance:
        peer = rank ^ distance
        low, high = window.chunk(2)
        keep, give = (low, high) if rank < peer else (high, low)
        other = torch.empty_like(keep)
        work = dist.isend(give, peer)
        dist.recv(other, peer)
        work.wait()
        keep += other
        window, distance = keep, distance // 2
