# reported: halving_doubling_all_reduce | first exchange half | work = dist.isend(tensor.clone(), peer)
def halving_doubling_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    other = torch.empty_like(tensor)
    distance = p // 2
    while distance:
        peer = rank ^ distance
        work = dist.isend(tensor.clone(), peer)
        dist.recv(other, peer)
        work.wait()
        tensor += other
        distance //= 2
