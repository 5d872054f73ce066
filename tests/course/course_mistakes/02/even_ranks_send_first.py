# reported: exchange | deadlock | dist.send(mine, peer) ;; dist.recv(theirs, peer) ;; if dist.get_rank() % 2 == 0:
def exchange(mine: torch.Tensor, theirs: torch.Tensor, peer: int) -> None:
    if dist.get_rank() % 2 == 0:
        dist.send(mine, peer)
        dist.recv(theirs, peer)
    else:
        dist.recv(theirs, peer)
        dist.send(mine, peer)
