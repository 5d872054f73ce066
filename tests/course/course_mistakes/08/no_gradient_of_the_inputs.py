# reported: ShardedLinear | gradient of the inputs must be a tensor | return None, mine
class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, shard):
        ctx.save_for_backward(inputs, shard)
        weight = shard.new_empty(shard.shape[0] * dist.get_world_size(), shard.shape[1])
        dist.all_gather_into_tensor(weight, shard)
        return inputs @ weight.T

    @staticmethod
    def backward(ctx, grad):
        inputs, shard = ctx.saved_tensors
        mine = torch.empty_like(shard)
        dist.reduce_scatter_tensor(mine, grad.T @ inputs)
        return None, mine / dist.get_world_size()


class ShardedLinear(nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.shard = nn.Parameter(weight.chunk(dist.get_world_size())[dist.get_rank()].clone())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return _Linear.apply(inputs, self.shard)
