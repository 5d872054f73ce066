class ShardedMomentum:
    def __init__(self, parameters, lr, momentum):
        self.params, self.lr, self.mu = parameters, lr, momentum
        self.world, self.rank = dist.get_world_size(), dist.get_rank()
        total = sum(p.numel() for p in parameters)
        self.pad = -total % self.world
        self.momentum_buffer = torch.zeros((total + self.pad) // self.world)

    def _flat(self, tensors):
        return nn.functional.pad(nn.utils.parameters_to_vector(tensors), (0, self.pad))

    def step(self):
        grads = list(self._flat([p.grad for p in self.params]).chunk(self.world))
        mine = torch.zeros_like(self.momentum_buffer)
        dist.reduce_scatter(mine, grads)
        self.momentum_buffer = self.mu * self.momentum_buffer + mine / self.world
        weights = list(self._flat([p.detach() for p in self.params]).chunk(self.world))
        new = weights[self.rank] - self.lr * self.momentum_buffer
        every = [torch.empty_like(new) for _ in range(self.world)]
        dist.all_gather(every, new)
        flat = torch.cat(every)
        nn.utils.vector_to_parameters(flat[: len(flat) - self.pad], self.params)
