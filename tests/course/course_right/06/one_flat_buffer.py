def average_gradients(model: nn.Module) -> None:
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    begin = 0
    for gradient in gradients:
        gradient.copy_(flat[begin : begin + gradient.numel()].reshape(gradient.shape))
        begin += gradient.numel()
