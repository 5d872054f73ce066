import torch
import torch.distributed as dist


def gpipe(stage, micro_batches: int) -> None:
    for micro_batch in range(micro_batches):
        outputs = stage.forward(micro_batch, receive(stage, -1))
        send(outputs, +1)
    for micro_batch in range(micro_batches):
        gradient = stage.backward(micro_batch, receive(stage, +1))
        send(gradient, -1)


def one_f_one_b(stage, micro_batches: int) -> None:
    under_way = []
    first = min(dist.get_world_size() - 1 - dist.get_rank(), micro_batches)
    order = [("forward", k) for k in range(first)]
    for k in range(micro_batches - first):
        order += [("forward", first + k), ("backward", k)]
    order += [("backward", k) for k in range(micro_batches - first, micro_batches)]
    for phase, micro_batch in order:
        towards = 1 if phase == "forward" else -1
        result = getattr(stage, phase)(micro_batch, receive(stage, -towards))
        under_way.append((send(result, towards, wait=False), result))
    for work, _ in under_way:
        if work is not None:
            work.wait()


def receive(stage, direction: int) -> torch.Tensor | None:
    peer = dist.get_rank() + direction
    if not 0 <= peer < dist.get_world_size():
        return None
    tensor = stage.empty()
    dist.recv(tensor, peer)
    return tensor


def send(tensor: torch.Tensor, direction: int, wait: bool = True) -> dist.Work | None:
    peer = dist.get_rank() + direction
    if not 0 <= peer < dist.get_world_size():
        return None
    work = dist.isend(tensor.contiguous(), peer)
    if wait:
        work.wait()
    return work


def bubble(stages: int, micro_batches: int) -> float:
    return (stages - 1) / (micro_batches + stages - 1)
