# reported: Copy, Sum, GatherSequence, ScatterSequence | Sum's input, which must not change | dist.all_reduce(inputs)
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        dist.all_reduce(inputs)
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx, gradient):
        return gradient
