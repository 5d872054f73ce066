"""Users' models whose weights are not plain contiguous float32, as files of a training's ``model``."""

import torch
from torch import nn


class Odd(nn.Module):
    """Scalar parameters and frozen half-precision ones; expanded, boolean and complex buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)
        self.scale = nn.Parameter(torch.rand(()))
        self.frozen = nn.Parameter(torch.rand(5).to(torch.bfloat16), requires_grad=False)
        self.register_buffer("expanded", torch.rand(3, 1).expand(3, 4))
        self.register_buffer("transposed", torch.rand(2, 3).T)
        self.register_buffer("mask", torch.rand(3) > 0.5)
        self.register_buffer("phase", torch.rand(2, dtype=torch.complex64))
        self.last = nn.Linear(4, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.last(self.convolution(images).mean((2, 3)) * self.scale) + self.frozen[:4].float()


def odd() -> nn.Module:
    return Odd()


def channels_last() -> nn.Module:
    return Odd().to(memory_format=torch.channels_last)


def half() -> nn.Module:
    model = Odd()
    model.last.to(torch.bfloat16)
    return model


def number() -> int:
    return 4
