"""Find parameters of a module that DDP does not know, because they were replaced or added after it was wrapped."""

from collections.abc import Iterable

import torch
from torch.nn.parallel import DistributedDataParallel

WRAP_LATER = (
    "wrap the module in DDP after its layers are replaced, its parameters are added and frozen ones are to be trained "
    "(requires_grad), then make the optimizer"
)


def find_unreduced(ddp: DistributedDataParallel, known: Iterable[torch.Tensor]) -> list[str]:
    """Return the names of the module's trainable parameters that are not among the known ones."""
    ids = set(map(id, known))
    ignored: set[str] = getattr(ddp, "parameters_to_ignore", set())
    return [
        name
        for name, one in ddp.module.named_parameters()
        if one.requires_grad and id(one) not in ids and name not in ignored
    ]


def name_unreduced(names: list[str]) -> str:
    """Return the parameters as text.

    >>> name_unreduced(["0.weight"]), name_unreduced(["2.weight", "2.bias"])
    ('the parameter 0.weight', 'the parameter 2.weight and 1 more')
    """
    return f"the parameter {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
