class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad)
        return grad


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(result, op=dist.ReduceOp.SUM)
        return result

    @staticmethod
    def backward(ctx, grad):
        return grad.clone()


class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, dim=0)

    @staticmethod
    def backward(ctx, grad):
        pieces = [piece.contiguous() for piece in torch.chunk(grad, dist.get_world_size(), dim=0)]
        mine = torch.empty_like(pieces[0])
        dist.reduce_scatter(mine, pieces)
        return mine


class ScatterSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return GatherSequence.backward(ctx, x)

    @staticmethod
    def backward(ctx, grad):
        return GatherSequence.forward(ctx, grad)
