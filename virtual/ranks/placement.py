"""Track the device that each tensor would be on. All data is in CPU memory.

A tensor's storage has an attribute with its GPU number or ``ON_CPU``. Tensors that torch creates for itself, such as
gradients, do not have the attribute: their device is unknown.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from virtual.ranks.world import VirtualWorld

ON_CPU = -1  # the place of a tensor on the CPU; a GPU's is its number
MARK = "ringlab_place"
CHOSEN, DEFAULT = "device", "default device"  # keys of Rank.extra: the current GPU, and the device of new tensors


def find_place(tensor: torch.Tensor) -> int | None:
    """Return the GPU number of a tensor, ON_CPU for a tensor on the CPU, or None if the device is unknown.

    >>> one = torch.ones(3)
    >>> find_place(one); mark_place(one, 1); find_place(one[1:])
    1
    """
    try:
        return getattr(tensor.untyped_storage(), MARK, None)
    except (NotImplementedError, RuntimeError):  # sparse tensors, and wrappers of others
        return None


def mark_place(tensor: torch.Tensor, place: int) -> None:
    """Set the device of a tensor: a GPU number, or ON_CPU."""
    with suppress(NotImplementedError, RuntimeError):
        setattr(tensor.untyped_storage(), MARK, place)


def find_common_place(tensors: Sequence[torch.Tensor]) -> int | None:
    """Return the GPU of the first tensor that is on a GPU.

    If there is none, return ON_CPU if all tensors are known to be on the CPU, else None.
    """
    places = [find_place(tensor) for tensor in tensors]
    on_gpu = [place for place in places if place is not None and place != ON_CPU]
    if on_gpu:
        return on_gpu[0]
    return ON_CPU if places and None not in places else None


class Placement:
    """Assigns GPUs to the ranks, and tracks the current GPU of each rank."""

    def __init__(self, world: VirtualWorld, per_node: int) -> None:
        self.world, self.per_node = world, per_node

    @property
    def _chosen(self) -> dict[str, Any]:
        rank = self.world.me()
        return {} if rank is None else rank.extra

    def current(self) -> int:
        return int(self._chosen.get(CHOSEN, 0))

    def use(self) -> int:
        """Return the number of the current GPU, and mark it as in use."""
        return int(self._chosen.setdefault(CHOSEN, 0))

    @property
    def is_used(self) -> bool:
        return CHOSEN in self._chosen

    def choose(self, device: Any) -> None:
        """Set the calling rank's current GPU. Raise RuntimeError if the machine does not have this GPU."""
        number = self.number(device)
        if number >= 0:
            self._chosen[CHOSEN] = number

    def number(self, device: Any) -> int:
        """Return the number of a CUDA device. Raise RuntimeError if the machine does not have this GPU.

        ``device`` is a number, a device or a device's name. A device without an index means the current GPU. A negative
        number is returned unchanged.
        """
        if isinstance(device, int):
            number = device
        else:
            parsed = torch.device(device)
            number = self.use() if parsed.index is None else parsed.index
        if number >= self.per_node:
            raise RuntimeError(f"CUDA error: invalid device ordinal ({number}: there are {self.per_node} GPUs)")
        return number

    def set_default(self, device: torch.device | None) -> None:
        self._chosen[DEFAULT] = device

    def default(self) -> int:
        """Return the GPU number of the calling rank's default device, or ON_CPU if no default is set."""
        device = self._chosen.get(DEFAULT)
        return ON_CPU if device is None else self.number(device)

    def hardware(self, number: int) -> tuple[int, str]:
        """Return the number of a GPU's machine, and the GPU's entry in CUDA_VISIBLE_DEVICES.

        If there is no such entry, ``number`` as text takes its place.
        """
        rank = self.world.me()
        machine = 0 if rank is None else max(0, rank.number) // self.per_node
        visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
        return machine, visible[number] if number < len(visible) else str(number)
