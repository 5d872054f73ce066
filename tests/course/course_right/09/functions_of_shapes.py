class ScatterSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        ctx.shape = inputs.shape
        part = torch.zeros((inputs.shape[0] // dist.get_world_size(), *inputs.shape[1:]), dtype=inputs.dtype)
        dist.reduce_scatter_tensor(part, inputs.detach().contiguous())
        return part

    @staticmethod
    def backward(ctx, gradient):
        gathered = torch.zeros(ctx.shape, dtype=gradient.dtype)
        dist.all_gather_into_tensor(gathered, gradient.contiguous())
        return gathered


class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        ctx.rows = inputs.shape[0]
        flat = torch.empty(inputs.numel() * dist.get_world_size(), dtype=inputs.dtype)
        dist.all_gather_into_tensor(flat, inputs.detach().flatten())
        return flat.view(-1, *inputs.shape[1:])

    @staticmethod
    def backward(ctx, gradient):
        mine = torch.empty((ctx.rows, *gradient.shape[1:]), dtype=gradient.dtype)
        dist.reduce_scatter_tensor(mine, gradient.contiguous())
        return mine
