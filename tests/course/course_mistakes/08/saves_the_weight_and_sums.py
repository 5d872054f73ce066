# reported: ShardedLinear | all_reduce is not allowed | dist.all_reduce(whole)
class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, shard):
        weight = shard.new_empty(shard.shape[0] * dist.get_world_size(), shard.shape[1])
        dist.all_gather_into_tensor(weight, shard)
        ctx.save_for_backward(inputs, weight)
        return inputs @ weight.T

    @staticmethod
    def backward(ctx, gradient):
        inputs, weight = ctx.saved_tensors
        whole = gradient.T @ inputs
        dist.all_reduce(whole)
        whole /= dist.get_world_size()
        return gradient @ weight, whole.chunk(dist.get_world_size())[dist.get_rank()].clone()


class ShardedLinear(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.shard = nn.Parameter(weight.chunk(dist.get_world_size())[dist.get_rank()].clone())

    def forward(self, inputs):
        return Linear.apply(inputs, self.shard)
