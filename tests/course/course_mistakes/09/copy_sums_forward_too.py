# reported: Copy, Sum, GatherSequence, ScatterSequence | Copy's forward.*2 times that | dist.all_reduce(inputs)
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        inputs = inputs.clone()
        dist.all_reduce(inputs)
        return inputs

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient
