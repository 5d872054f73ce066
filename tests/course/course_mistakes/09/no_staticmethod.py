# reported: Copy, Sum, GatherSequence, ScatterSequence | static | elsewhere: def forward(self, inputs): ;; class Copy
class Copy(torch.autograd.Function):
    def forward(self, inputs):
        return inputs

    def backward(self, gradient):
        dist.all_reduce(gradient)
        return gradient
