"""A convolutional network with 1.1 million parameters, which is small enough for the slow links of emulated hosts."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

CHANNELS = ((3, 32, 1), (32, 64, 2), (64, 128, 2), (128, 256, 2), (256, 256, 1))  # in, out and stride of each block


def build() -> "nn.Module":
    """Return the network. An input is an image of shape [3, 32, 32]. The outputs are the logits of ten classes."""
    from torch import nn  # slow to import

    blocks = [
        layer
        for before, after, stride in CHANNELS
        for layer in (nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU())
    ]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    return nn.Sequential(*blocks, *head)
