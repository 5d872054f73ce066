# reported: Copy, Sum, GatherSequence, ScatterSequence | Copy's backward.*half of that | return gradient
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx, gradient):
        return gradient
