# reported: halving_doubling_all_reduce | from another place | elsewhere: keep, give = window.chunk(2)
def halving_doubling_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    window, distance, done = tensor, p // 2, []
    while distance:
        peer = rank ^ distance
        keep, give = window.chunk(2)
        other = torch.empty_like(keep)
        work = dist.isend(give, peer)
        dist.recv(other, peer)
        work.wait()
        keep += other
        done.append((peer, keep, give))
        window, distance = keep, distance // 2
    for peer, keep, give in reversed(done):
        work = dist.isend(keep, peer)
        dist.recv(give, peer)
        work.wait()
