"""What the program calls a parameter."""

import gc
from collections.abc import Iterable
from typing import Any

import torch

from virtual.ranks.rank import Rank


def name_parameter(rank: Rank, parameter: torch.Tensor, wrapped: Iterable[Any]) -> str:
    """Return a parameter's name in its module, as long as it may be; its shape where no module has it.

    All modules of the process are looked through, which is done for a message only.
    """
    names = [name for ddp in wrapped for name, one in ddp.module.named_parameters() if one is parameter]
    if not names:
        modules = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)]
        names = [name for module in modules for name, one in module.named_parameters() if one is parameter]
    found: str = max(names, key=len, default=f"a parameter of shape {list(parameter.shape)}")
    return found
