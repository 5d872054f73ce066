# reported: average_gradients | 2 times that | dist.all_reduce(parameter.grad)
def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
