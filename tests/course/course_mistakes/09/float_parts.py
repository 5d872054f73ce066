# reported: Copy, Sum, GatherSequence, ScatterSequence | expected Double, got Float | dist.all_gather_into_tensor(whole, inputs.contiguous()) ;; dist.reduce_scatter_tensor(
class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        gathered = torch.empty(inputs.shape[0] * dist.get_world_size(), *inputs.shape[1:])
        dist.all_gather_into_tensor(gathered, inputs.contiguous())
        return gathered

    @staticmethod
    def backward(ctx, gradient):
        part = torch.empty(gradient.shape[0] // dist.get_world_size(), *gradient.shape[1:])
        dist.reduce_scatter_tensor(part, gradient.contiguous())
        return part
