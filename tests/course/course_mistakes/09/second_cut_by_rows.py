# reported: ParallelMLP | by columns | self.second = nn.Parameter(
class ParallelMLP(nn.Module):
    def __init__(self, first, second, sequence=False):
        super().__init__()
        p, r = dist.get_world_size(), dist.get_rank()
        self.first = nn.Parameter(first.chunk(p)[r].clone())
        self.second = nn.Parameter(second.chunk(p)[r].clone())
        self.sequence = sequence

    def forward(self, inputs):
        if self.sequence:
            hidden = torch.relu(GatherSequence.apply(inputs) @ self.first.T)
            return ScatterSequence.apply(hidden @ self.second.T)
        hidden = torch.relu(Copy.apply(inputs) @ self.first.T)
        return Sum.apply(hidden @ self.second.T)
