class Copy(torch.autograd.Function):
    @staticmethod
    def forward(inputs):
        return inputs.view_as(inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        summed = gradient + 0
        work = dist.all_reduce(summed, async_op=True)
        work.wait()
        return summed
