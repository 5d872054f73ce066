"""A user's model in which rank 1 fails in its fourth forward or backward.

``RINGLAB_FAULT`` is the fault and its phase, for example ``raise backward``. Without it the model trains.
"""

import os
import random
import signal
import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

CALL = 4


class Faulty(nn.Module):
    """A linear model that draws from the random numbers of torch, numpy and Python."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(3 * 32 * 32, 10))
        self.calls = 0
        go_wrong(self, "constructor")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        go_wrong(self, "forward")
        noise = random.gauss(0, 0.01) + float(np.random.normal(0, 0.01)) if self.training else 0.0
        scores: torch.Tensor = _InBackward.apply(self.layers(images) + noise, self)
        return scores * torch.nan if os.environ.get("RINGLAB_FAULT") == "nan" and _is_time(self) else scores


class _InBackward(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, scores: torch.Tensor, model: Faulty) -> torch.Tensor:
        context.model = model
        return scores.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        go_wrong(context.model, "backward")
        return gradients[0], None


def _is_time(model: Faulty) -> bool:
    return dist.is_initialized() and dist.get_rank() == 1 and model.calls == CALL


def go_wrong(model: Faulty, place: str) -> None:
    """Cause the fault that ``RINGLAB_FAULT`` names, if it belongs to this phase."""
    fault, _, where = os.environ.get("RINGLAB_FAULT", "").partition(" ")
    is_time = dist.is_initialized() if place == "constructor" else _is_time(model)
    if where != place or not is_time:
        return
    if fault.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[fault])
    if fault.isdecimal():  # a signal without a name
        os.kill(os.getpid(), int(fault))
    if fault == "raise":
        raise ZeroDivisionError("a fault of the user's")
    if fault == "hang":
        time.sleep(600)


def build() -> nn.Module:
    random.seed(0)
    np.random.seed(0)
    return Faulty()
