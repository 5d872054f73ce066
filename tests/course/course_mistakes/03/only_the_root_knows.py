# reported: all_reduce | rank 1.*holds rank 1's | reduce(tensor, 0)
def all_reduce(tensor: torch.Tensor) -> None:
    reduce(tensor, 0)
