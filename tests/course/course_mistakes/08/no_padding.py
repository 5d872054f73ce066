# reported: ShardedMomentum | padded | grad = torch.cat( ;; self.momentum_buffer = torch.zeros( ;; dist.reduce_scatter_tensor(mine
class ShardedMomentum:
    def __init__(self, parameters, lr, momentum):
        self.parameters, self.lr, self.momentum = list(parameters), lr, momentum
        self.length = sum(p.numel() for p in self.parameters)
        self.momentum_buffer = torch.zeros(self.length // dist.get_world_size())

    @torch.no_grad()
    def step(self):
        world_size, rank = dist.get_world_size(), dist.get_rank()
        grad = torch.cat([p.grad.flatten() for p in self.parameters])
        flat = torch.cat([p.flatten() for p in self.parameters])
        mine = torch.empty_like(self.momentum_buffer)
        dist.reduce_scatter_tensor(mine, grad)
        mine /= world_size
        self.momentum_buffer.mul_(self.momentum).add_(mine)
        part = flat.chunk(world_size)[rank] - self.lr * self.momentum_buffer
        dist.all_gather_into_tensor(flat, part)
        for p, piece in zip(self.parameters, flat.split([p.numel() for p in self.parameters])):
            p.copy_(piece.view_as(p))
