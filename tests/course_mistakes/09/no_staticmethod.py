# told: Copy, Sum, GatherSequence, ScatterSequence | static
class Copy(torch.autograd.Function):
    def forward(self, inputs):
        return inputs

    def backward(self, gradient):
        dist.all_reduce(gradient)
        return gradient
