# reported: average_gradients | wait | dist.all_reduce(parameter.grad, async_op=True) ;; parameter.grad /= dist.get_world_size()
def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, async_op=True)
            parameter.grad /= dist.get_world_size()
