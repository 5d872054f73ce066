# reported: exchange | deadlock | dist.recv(theirs, peer)
def exchange(mine: torch.Tensor, theirs: torch.Tensor, peer: int) -> None:
    dist.recv(theirs, peer)
    dist.send(mine, peer)
