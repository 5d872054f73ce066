# reported: average_gradients | must stay None | elsewhere: parameter.grad = torch.zeros_like(parameter)
def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
