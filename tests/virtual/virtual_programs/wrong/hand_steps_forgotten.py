# kind: parameter mismatch
# ranks: 3
# A program without an optimizer does not average the gradient of the bias.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
w1, w2, bias = (torch.randn(*shape, requires_grad=True) for shape in ((4, 8), (8, 1), (8,)))
torch.manual_seed(1 + dist.get_rank())
for _ in range(5):
    x = torch.randn(16, 4)
    loss = ((x @ w1 + bias).tanh() @ w2 - x.sum(1, keepdim=True)).square().mean()
    loss.backward()  # reported: 0; 1; 2
    with torch.no_grad():
        for w in (w1, w2):
            dist.all_reduce(w.grad, op=dist.ReduceOp.SUM)
            w.grad /= dist.get_world_size()
        # fix: dist.all_reduce(bias.grad)
        # fix: bias.grad /= dist.get_world_size()
        for w in (w1, w2, bias):
            w -= 0.02 * w.grad
            w.grad.zero_()
