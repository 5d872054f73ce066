# reported: exchange | rank 0: theirs must be 1 | elsewhere: dist.send(theirs, peer)
def exchange(mine, theirs, peer):
    if dist.get_rank() < peer:
        dist.send(mine, peer)
        dist.recv(theirs, peer)
    else:
        dist.recv(theirs, peer)
        dist.send(theirs, peer)
