"""Random sequences of collectives on gloo ranks match torch.distributed's own calls, in any mode of autograd."""

import pytest
import real_fuzz
from real_functions import FUNCTIONS

from realcomm.launching.launcher import launch

LONG = [pytest.param(p, seed, 3000, marks=pytest.mark.slow) for p in (1, 2, 3, 4) for seed in range(1, 4)]


@pytest.mark.parametrize(("world_size", "seed", "count"), [(1, 0, 50), (3, 0, 250), *LONG])
def test_random_calls_of_all_functions_match_torch(world_size: int, seed: int, count: int):
    for made, wrong in launch(real_fuzz.random_calls, world_size, seed, count, timeout=500):
        assert wrong == []
        assert count < 150 or world_size > 3 or {*FUNCTIONS} <= {*made}
