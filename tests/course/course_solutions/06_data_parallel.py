import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


class OverlappedGradients:
    def __init__(self, model: nn.Module, bucket_bytes: int) -> None:
        self.buckets: list[list[nn.Parameter]] = [[]]
        self.bucket_of: dict[nn.Parameter, int] = {}
        nbytes = 0
        for parameter in reversed(list(model.parameters())):
            if nbytes >= bucket_bytes:
                self.buckets.append([])
                nbytes = 0
            nbytes += parameter.nbytes
            self.bucket_of[parameter] = len(self.buckets) - 1
            self.buckets[-1].append(parameter)
            parameter.register_post_accumulate_grad_hook(self.arrived)
        self.begin()

    def begin(self) -> None:
        self.missing = [len(bucket) for bucket in self.buckets]
        self.under_way: list[tuple[dist.Work, torch.Tensor, list[nn.Parameter]]] = []

    def arrived(self, parameter: nn.Parameter) -> None:
        number = self.bucket_of[parameter]
        self.missing[number] -= 1
        if self.missing[number] == 0:
            bucket = self.buckets[number]
            flat = torch.cat([parameter.grad.flatten() for parameter in bucket])
            self.under_way.append((dist.all_reduce(flat, async_op=True), flat, bucket))

    def finish(self) -> None:
        for work, flat, bucket in self.under_way:
            work.wait()
            flat /= dist.get_world_size()
            for parameter, mean in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                parameter.grad.copy_(mean.view_as(parameter))
        self.begin()
