# reported: exchange | isend is not allowed | request = dist.isend(mine, peer)
def exchange(mine: torch.Tensor, theirs: torch.Tensor, peer: int) -> None:
    request = dist.isend(mine, peer)
    dist.recv(theirs, peer)
    request.wait()
