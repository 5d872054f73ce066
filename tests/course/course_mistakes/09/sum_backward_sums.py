# reported: Copy, Sum, GatherSequence, ScatterSequence | Sum's backward.*2 times that | elsewhere: dist.all_reduce(gradient)
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        total = inputs.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient
