"""Random sequences of collectives on gloo ranks match torch.distributed's own calls."""

import pytest
import real_fuzz
from real_calls import MODES
from real_functions import FUNCTIONS

from realcomm.launching.launcher import launch

LONG = [
    pytest.param(p, seed, 3000, 0.004 if p > 1 else 0.0, marks=pytest.mark.slow)  # a group that fails has two ranks
    for p in (1, 2, 3, 4)
    for seed in range(1, 4)
]


@pytest.mark.parametrize(("world_size", "seed", "count", "failures"), [(1, 0, 50, 0.0), (3, 0, 150, 0.01), *LONG])
def test_random_calls_match_torch(world_size: int, seed: int, count: int, failures: float):
    for made, wrong in launch(real_fuzz.random_calls, world_size, seed, count, failures, timeout=500):
        assert wrong == []
        assert count < 150 or world_size > 3 or {*FUNCTIONS, "wrong arguments"} <= {*made}


@pytest.mark.parametrize(
    ("world_size", "made_in"),
    [(2, ("usual", "inference")), *(pytest.param(p, tuple(MODES), marks=pytest.mark.slow) for p in (2, 3))],
)
def test_calls_in_every_mode_match_torch(world_size: int, made_in: tuple[str, ...]):
    """Autocast, inference mode and gradient modes may differ between calls, and from those of the tensors."""
    for made, wrong in launch(real_fuzz.every_mode, world_size, made_in, timeout=200):
        assert wrong == []
        assert made == dict.fromkeys(FUNCTIONS, 2 * len(made_in) * (len(MODES) + 2))
