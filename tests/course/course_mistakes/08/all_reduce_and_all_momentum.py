# reported: ShardedMomentum | all_reduce is not allowed | dist.all_reduce(flat)
class ShardedMomentum:
    def __init__(self, parameters, lr, momentum):
        self.parameters, self.lr, self.momentum = parameters, lr, momentum
        numel, p = sum(one.numel() for one in parameters), dist.get_world_size()
        self.momentum_buffer = torch.zeros(-(-numel // p))
        self.whole = torch.zeros(len(self.momentum_buffer) * p)

    def step(self):
        p, part = dist.get_world_size(), len(self.momentum_buffer)
        flat = torch.zeros_like(self.whole)
        gradients = torch.cat([one.grad.flatten() for one in self.parameters])
        flat[: len(gradients)] = gradients / p
        dist.all_reduce(flat)
        self.whole.mul_(self.momentum).add_(flat)
        self.momentum_buffer.copy_(self.whole[part * dist.get_rank() :][:part])
        at = 0
        with torch.no_grad():
            for one in self.parameters:
                one -= self.lr * self.whole[at : at + one.numel()].view_as(one)
                at += one.numel()
