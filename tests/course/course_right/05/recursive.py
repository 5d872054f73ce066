def halving_doubling_all_reduce(tensor: torch.Tensor) -> None:
    rank = dist.get_rank()

    def swap(give, take, peer):
        pair = [dist.P2POp(dist.irecv, take, peer), dist.P2POp(dist.isend, give, peer)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()

    def sum_up(part, ranks):
        if ranks == 1:
            return
        half = ranks // 2
        low, high = part[: len(part) // 2], part[len(part) // 2 :]
        is_low = rank % ranks < half
        keep, give = (low, high) if is_low else (high, low)
        peer = rank + half if is_low else rank - half
        incoming = torch.empty_like(keep)
        swap(give, incoming, peer)
        keep += incoming
        sum_up(keep, half)
        swap(keep, give, peer)

    sum_up(tensor, dist.get_world_size())


def tree_broadcast(tensor: torch.Tensor) -> None:
    def spread(first, last):
        if last - first < 2:
            return
        middle = (first + last + 1) // 2
        if dist.get_rank() == first:
            dist.send(tensor, middle)
        if dist.get_rank() == middle:
            dist.recv(tensor, first)
        spread(first, middle) if dist.get_rank() < middle else spread(middle, last)

    spread(0, dist.get_world_size())
