# reported: halving_doubling_all_reduce | 2 times | give += other
def halving_doubling_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    window, distance, done = tensor, p // 2, []
    while distance:
        peer = rank ^ distance
        low, high = window.chunk(2)
        keep, give = (low, high) if rank < peer else (high, low)
        other = torch.empty_like(keep)
        work = dist.isend(give, peer)
        dist.recv(other, peer)
        work.wait()
        keep += other
        done.append((peer, keep, give))
        window, distance = keep, distance // 2
    for peer, keep, give in reversed(done):
        other = torch.empty_like(give)
        work = dist.isend(keep, peer)
        dist.recv(other, peer)
        work.wait()
        give += other
