def average_gradients(model: nn.Module) -> None:
    works = []
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        parameter.grad.div_(dist.get_world_size())
        works.append(dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM, async_op=True))
    for work in works:
        work.wait()
