# reported: ring_all_reduce | rank 1 sends to rank 0, not to 2 | dist.P2POp( ;; for work in dist.batch_isend_irecv( ;; swap(
def ring_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()

    def swap(give, take, peer):
        pair = [dist.P2POp(dist.isend, give, peer), dist.P2POp(dist.irecv, take, peer)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()

    distance, part, way = 1, tensor, []
    while distance < p:
        peer = rank ^ distance
        low, high = part[: len(part) // 2], part[len(part) // 2 :]
        keep, give = (low, high) if rank < peer else (high, low)
        incoming = torch.empty_like(keep)
        swap(give, incoming, peer)
        keep += incoming
        way.append((peer, keep, give))
        part, distance = keep, distance * 2
    for peer, keep, give in reversed(way):
        swap(keep, give, peer)
