# reported: exchange | rank 0: theirs must be 1 | dist.recv(mine, peer)
def exchange(mine: torch.Tensor, theirs: torch.Tensor, peer: int) -> None:
    if dist.get_rank() < peer:
        dist.send(mine, peer)
        dist.recv(mine, peer)
    else:
        dist.recv(theirs, peer)
        dist.send(mine, peer)
