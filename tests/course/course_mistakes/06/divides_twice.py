# reported: average_gradients | half of that | parameter.grad /= p
def average_gradients(model: nn.Module) -> None:
    p = dist.get_world_size()
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= p
            dist.all_reduce(parameter.grad)
            parameter.grad /= p
