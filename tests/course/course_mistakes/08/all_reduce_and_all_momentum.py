# reported: ShardedMomentum | all_reduce is not allowed | dist.all_reduce(flat)
class ShardedMomentum:
    def __init__(self, parameters, lr, momentum):
        self.parameters, self.lr, self.momentum = parameters, lr, momentum
        numel, p = sum(parameter.numel() for parameter in parameters), dist.get_world_size()
        self.momentum_buffer = torch.zeros(-(-numel // p))
        self.whole = torch.zeros(len(self.momentum_buffer) * p)

    def step(self):
        p, part = dist.get_world_size(), len(self.momentum_buffer)
        flat = torch.zeros_like(self.whole)
        gradients = torch.cat([parameter.grad.flatten() for parameter in self.parameters])
        flat[: len(gradients)] = gradients / p
        dist.all_reduce(flat)
        self.whole.mul_(self.momentum).add_(flat)
        self.momentum_buffer.copy_(self.whole[part * dist.get_rank() :][:part])
        at = 0
        with torch.no_grad():
            for parameter in self.parameters:
                parameter -= self.lr * self.whole[at : at + parameter.numel()].view_as(parameter)
                at += parameter.numel()
