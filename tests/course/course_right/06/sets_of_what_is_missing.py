class OverlappedGradients:
    def __init__(self, model: nn.Module, bucket_bytes: int) -> None:
        import functools

        groups, size = [[]], 0
        for name, parameter in reversed(list(model.named_parameters())):
            groups[-1].append(parameter)
            size += parameter.nbytes
            if size >= bucket_bytes:
                groups.append([])
                size = 0
        self.groups = [group for group in groups if group]
        self.buffers = [torch.zeros(sum(p.numel() for p in group), dtype=group[0].dtype) for group in self.groups]
        self.waiting = [set(map(id, group)) for group in self.groups]
        self.handles = {}
        for index, group in enumerate(self.groups):
            for parameter in group:
                parameter.register_post_accumulate_grad_hook(functools.partial(self.hook, index))

    def hook(self, index, parameter):
        self.waiting[index].discard(id(parameter))
        if not self.waiting[index]:
            torch.cat([p.grad.ravel() for p in self.groups[index]], out=self.buffers[index])
            self.handles[index] = dist.all_reduce(self.buffers[index], async_op=True)
            self.waiting[index] = set(map(id, self.groups[index]))

    def finish(self) -> None:
        while self.handles:
            index, handle = self.handles.popitem()
            handle.wait()
            pieces = torch.split(self.buffers[index] / dist.get_world_size(), [p.numel() for p in self.groups[index]])
            for parameter, piece in zip(self.groups[index], pieces):
                parameter.grad.copy_(piece.reshape(parameter.grad.shape))
