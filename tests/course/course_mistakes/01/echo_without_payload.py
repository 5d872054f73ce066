# reported: measure | send all its bytes back | elsewhere: dist.send(ack, 0) ;; dist.recv(ack, 1)
def measure(nbytes: int) -> float:
    buffer = torch.zeros(nbytes, dtype=torch.uint8)
    ack = torch.zeros(1, dtype=torch.uint8)
    start = time.perf_counter()
    if dist.get_rank() == 0:
        dist.send(buffer, 1)
        dist.recv(ack, 1)
    else:
        dist.recv(buffer, 0)
        dist.send(ack, 0)
    return (time.perf_counter() - start) / 2
