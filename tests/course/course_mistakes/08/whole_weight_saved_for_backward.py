# reported: ShardedLinear | backward gathers it once more | elsewhere: ctx.save_for_backward(
class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, shard):
        weight = shard.new_empty(shard.shape[0] * dist.get_world_size(), shard.shape[1])
        dist.all_gather_into_tensor(weight, shard)
        ctx.save_for_backward(inputs, weight)
        return inputs @ weight.T

    @staticmethod
    def backward(ctx, grad):
        inputs, weight = ctx.saved_tensors
        p = dist.get_world_size()
        mine = weight.new_empty(weight.shape[0] // p, weight.shape[1])
        dist.reduce_scatter_tensor(mine, grad.T @ inputs)
        return grad @ weight, mine / p


class ShardedLinear(nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.shard = nn.Parameter(weight.chunk(dist.get_world_size())[dist.get_rank()].clone())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return _Linear.apply(inputs, self.shard)
