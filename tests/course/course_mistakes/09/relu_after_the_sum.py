# reported: ParallelMLP | the outputs | return torch.relu(self.leave
class ParallelMLP(nn.Module):
    def __init__(self, first: torch.Tensor, second: torch.Tensor, sequence: bool = False) -> None:
        super().__init__()
        p, r = dist.get_world_size(), dist.get_rank()
        self.first = nn.Parameter(first.chunk(p, 0)[r].clone())
        self.second = nn.Parameter(second.chunk(p, 1)[r].clone())
        self.enter, self.leave = (GatherSequence, ScatterSequence) if sequence else (Copy, Sum)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.leave.apply(self.enter.apply(inputs) @ self.first.T @ self.second.T))
