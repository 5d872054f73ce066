# reported: ShardedLinear | step 2.*the outputs | if self.whole is None: ;; return Rows.apply(
class Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, shard, layer):
        ctx.layer = layer
        ctx.save_for_backward(inputs, shard)
        return inputs @ layer.gather().T

    @staticmethod
    def backward(ctx, gradient):
        inputs, shard = ctx.saved_tensors
        mine = torch.empty_like(shard)
        dist.reduce_scatter_tensor(mine, gradient.T @ inputs)
        return gradient @ ctx.layer.gather(), mine / dist.get_world_size(), None


class ShardedLinear(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.shard = nn.Parameter(weight.chunk(dist.get_world_size())[dist.get_rank()].clone())
        self.whole = None

    def gather(self):
        if self.whole is None:
            self.whole = self.shard.new_empty(len(self.shard) * dist.get_world_size(), self.shard.shape[1])
            dist.all_gather_into_tensor(self.whole, self.shard.detach())
        return self.whole

    def forward(self, inputs):
        return Rows.apply(inputs, self.shard, self)
