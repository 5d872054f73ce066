# reported: Copy, Sum, GatherSequence, ScatterSequence | the gradient that Copy's backward gets, which must not change | dist.all_reduce(gradient)
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx, gradient):
        dist.all_reduce(gradient)
        return gradient
