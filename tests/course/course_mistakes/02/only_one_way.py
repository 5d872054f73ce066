# reported: exchange | rank 0: theirs must be 1 | dist.send(mine, peer)
def exchange(mine, theirs, peer):
    if dist.get_rank() < peer:
        dist.send(mine, peer)
    else:
        dist.recv(theirs, peer)
