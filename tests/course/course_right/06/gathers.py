def average_gradients(model):
    for parameter in filter(lambda parameter: parameter.grad is not None, model.parameters()):
        every = [torch.empty_like(parameter.grad) for _ in range(dist.get_world_size())]
        dist.all_gather(every, parameter.grad)
        parameter.grad = torch.stack(every).mean(dim=0)
