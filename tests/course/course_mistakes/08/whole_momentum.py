# reported: ShardedMomentum | all_reduce is not allowed | dist.all_reduce(grad)
class ShardedMomentum:
    def __init__(self, parameters, lr, momentum):
        self.parameters, self.lr, self.momentum = list(parameters), lr, momentum
        self.momentum_buffer = torch.zeros(sum(p.numel() for p in self.parameters))

    @torch.no_grad()
    def step(self):
        grad = torch.cat([p.grad.flatten() for p in self.parameters])
        dist.all_reduce(grad)
        grad /= dist.get_world_size()
        self.momentum_buffer.mul_(self.momentum).add_(grad)
        pieces = self.momentum_buffer.split([p.numel() for p in self.parameters])
        for p, piece in zip(self.parameters, pieces):
            p -= self.lr * piece.view_as(p)
