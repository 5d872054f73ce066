# reported: ShardedMomentum | 2 times that | dist.reduce_scatter_tensor(mine ;; self.momentum_buffer.mul_(
class ShardedMomentum:
    def __init__(self, parameters, lr, momentum):
        self.parameters, self.lr, self.momentum = list(parameters), lr, momentum
        length = sum(p.numel() for p in self.parameters)
        self.pad = -length % dist.get_world_size()
        self.momentum_buffer = torch.zeros((length + self.pad) // dist.get_world_size())

    def flat(self, tensors):
        return torch.nn.functional.pad(torch.cat([t.flatten() for t in tensors]), (0, self.pad))

    @torch.no_grad()
    def step(self):
        grad = self.flat([p.grad for p in self.parameters])
        flat = self.flat(self.parameters)
        mine = torch.empty_like(self.momentum_buffer)
        dist.reduce_scatter_tensor(mine, grad)
        self.momentum_buffer.mul_(self.momentum).add_(mine)
        part = flat.chunk(dist.get_world_size())[dist.get_rank()] - self.lr * self.momentum_buffer
        dist.all_gather_into_tensor(flat, part)
        sizes = [p.numel() for p in self.parameters]
        for p, piece in zip(self.parameters, flat[: sum(sizes)].split(sizes)):
            p.copy_(piece.view_as(p))
