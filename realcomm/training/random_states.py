"""The states of all random number generators of this process, as numbers and tensors that a checkpoint can hold."""

import random
from typing import Any

import numpy as np
import torch

RandomStates = dict[str, Any]


def get_random_states() -> RandomStates:
    """Return the states of torch's, Python's and numpy's generators, and of the GPU's where one is in use."""
    name, keys, *rest = np.random.get_state(legacy=True)
    states: RandomStates = {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest),
    }
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_states(states: RandomStates) -> None:
    """Set the generators to states that ``get_random_states`` returned.

    >>> before = get_random_states()
    >>> first = torch.rand(3)
    >>> set_random_states(before)
    >>> torch.equal(torch.rand(3), first)
    True
    """
    torch.set_rng_state(states["torch"].cpu())
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.cpu().numpy().astype(np.uint32), *rest))
    if "cuda" in states and torch.cuda.is_initialized():
        torch.cuda.set_rng_state(states["cuda"].cpu())
