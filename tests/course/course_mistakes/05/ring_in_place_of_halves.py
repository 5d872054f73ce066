# reported: halving_doubling_all_reduce | takes .* is enough|sends to rank | work.wait() ;; for work in ;; dist.isend( ;; both = [
def halving_doubling_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = tensor.tensor_split(p)
    for step in range(2 * (p - 1)):
        mine, theirs = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        received = torch.empty_like(theirs)
        both = [dist.isend(mine, (rank + 1) % p), dist.irecv(received, (rank - 1) % p)]
        for work in both:
            work.wait()
        theirs.copy_(theirs + received if step < p - 1 else received)
