# reported: measure | not None; return it | print((time.perf_counter() - t) / 2)
def measure(nbytes):
    x = torch.zeros(nbytes, dtype=torch.uint8)
    t = time.perf_counter()
    if dist.get_rank() == 0:
        dist.send(x, 1)
        dist.recv(x, 1)
    else:
        dist.recv(x, 0)
        dist.send(x, 0)
    print((time.perf_counter() - t) / 2)
