# reported: ParallelMLP | with sequence=True | hidden = torch.relu(Copy.apply(inputs) ;; def __init__(self, first, second, sequence=False): ;; return Sum.apply(hidden
class ParallelMLP(nn.Module):
    def __init__(self, first, second, sequence=False):
        super().__init__()
        p, r = dist.get_world_size(), dist.get_rank()
        self.first = nn.Parameter(first.chunk(p, 0)[r].clone())
        self.second = nn.Parameter(second.chunk(p, 1)[r].clone())

    def forward(self, inputs):
        hidden = torch.relu(Copy.apply(inputs) @ self.first.T)
        return Sum.apply(hidden @ self.second.T)
