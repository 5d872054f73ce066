# reported: average_gradients | the gradient of parameter 0 | dist.all_reduce(parameter.data) ;; parameter.data /=
def average_gradients(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            dist.all_reduce(parameter.data)
            parameter.data /= dist.get_world_size()
