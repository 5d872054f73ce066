# reported: measure | uint8 | elsewhere: buffer = torch.zeros(nbytes)
def measure(nbytes: int) -> float:
    buffer = torch.zeros(nbytes)
    start = time.perf_counter()
    if dist.get_rank() == 0:
        dist.send(buffer, 1)
        dist.recv(buffer, 1)
    else:
        dist.recv(buffer, 0)
        dist.send(buffer, 0)
    return (time.perf_counter() - start) / 2
