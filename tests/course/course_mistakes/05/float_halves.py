# reported: halving_doubling_all_reduce | (?s)int64.*float32|float32.*int64 | work.wait() ;; dist.recv(received, peer) ;; work = dist.isend(
def halving_doubling_all_reduce(tensor: torch.Tensor) -> None:
    rank, distance, own, path = dist.get_rank(), dist.get_world_size() // 2, tensor, []
    while distance:
        peer = rank ^ distance
        low, high = own.tensor_split(2)
        keep, give = (high, low) if rank & distance else (low, high)
        received = torch.zeros(len(keep))
        work = dist.isend(give, peer)
        dist.recv(received, peer)
        work.wait()
        keep += received
        path.append((peer, keep, give))
        own, distance = keep, distance // 2
    for peer, keep, give in reversed(path):
        work = dist.isend(keep, peer)
        dist.recv(give, peer)
        work.wait()
