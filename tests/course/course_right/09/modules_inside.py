class Cut(nn.Module):
    def __init__(self, weight, dim):
        super().__init__()
        parts = torch.tensor_split(weight, dist.get_world_size(), dim=dim)
        self.weight = nn.Parameter(parts[dist.get_rank()].clone())

    def forward(self, x):
        return torch.einsum("th,oh->to", x, self.weight)


class ParallelMLP(nn.Module):
    def __init__(self, first, second, sequence=False):
        super().__init__()
        self.up, self.down = Cut(first, 0), Cut(second, 1)
        self.sequence = sequence

    @property
    def first(self):
        return self.up.weight

    @property
    def second(self):
        return self.down.weight

    def forward(self, inputs):
        enter, leave = (GatherSequence, ScatterSequence) if self.sequence else (Copy, Sum)
        return leave.apply(self.down(torch.clamp(self.up(enter.apply(inputs)), min=0)))
