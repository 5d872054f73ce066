def halving_doubling_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    begin, end, history = 0, tensor.numel(), []
    distance = 1
    while distance < p:
        peer, middle = rank ^ distance, (begin + end) // 2
        mine, yours = ((begin, middle), (middle, end)) if rank < peer else ((middle, end), (begin, middle))
        got = torch.zeros(mine[1] - mine[0], dtype=tensor.dtype)
        sending = dist.isend(tensor[yours[0] : yours[1]].clone(), peer)
        dist.recv(got, peer)
        sending.wait()
        tensor[mine[0] : mine[1]] += got
        history.append((peer, mine, yours))
        begin, end = mine
        distance *= 2
    while history:
        peer, mine, yours = history.pop()
        sending = dist.isend(tensor[mine[0] : mine[1]].clone(), peer)
        dist.recv(tensor[yours[0] : yours[1]], peer)
        sending.wait()
