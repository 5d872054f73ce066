class ShardedMomentum:
    def __init__(self, parameters: list[nn.Parameter], lr: float, momentum: float) -> None:
        self.parameters, self.lr, self.momentum = parameters, lr, momentum
        flat = torch.cat([p.detach().flatten() for p in parameters])
        p = dist.get_world_size()
        self.size = (len(flat) + p - 1) // p
        padded = torch.cat([flat, torch.zeros(self.size * p - len(flat))])
        self.mine = padded[dist.get_rank() * self.size :][: self.size].clone()
        self.momentum_buffer = torch.zeros(self.size)

    @torch.no_grad()
    def step(self) -> None:
        p = dist.get_world_size()
        gradients = torch.zeros(self.size * p)
        at = 0
        for parameter in self.parameters:
            gradients[at : at + parameter.numel()] = parameter.grad.flatten() / p
            at += parameter.numel()
        part = torch.empty(self.size)
        dist.reduce_scatter_tensor(part, gradients, op=dist.ReduceOp.SUM)
        self.momentum_buffer.mul_(self.momentum).add_(part)
        self.mine.sub_(self.momentum_buffer, alpha=self.lr)
        dist.all_gather_into_tensor(gradients, self.mine)
        at = 0
        for parameter in self.parameters:
            parameter.data = gradients[at : at + parameter.numel()].view_as(parameter).clone()
            at += parameter.numel()
