class Rows(torch.autograd.Function):
    @staticmethod
    def whole(shard):
        rows = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, shard)
        return torch.cat(rows)

    @staticmethod
    def forward(ctx, x, shard):
        ctx.x, ctx.shard = x, shard
        return nn.functional.linear(x, Rows.whole(shard))

    @staticmethod
    def backward(ctx, grad_output):
        weight = Rows.whole(ctx.shard)
        grad_input = torch.matmul(grad_output, weight)
        parts = [part.contiguous() for part in torch.matmul(grad_output.t(), ctx.x).chunk(dist.get_world_size())]
        grad_shard = torch.zeros_like(parts[0])
        dist.reduce_scatter(grad_shard, parts)
        return grad_input, grad_shard.div(dist.get_world_size())


class ShardedLinear(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.shard = nn.Parameter(weight.tensor_split(dist.get_world_size())[dist.get_rank()].detach().clone())

    def forward(self, inputs):
        return Rows.apply(inputs, self.shard)
