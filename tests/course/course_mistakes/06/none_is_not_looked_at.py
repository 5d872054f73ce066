# reported: average_gradients | None | dist.all_reduce(parameter.grad)
def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
