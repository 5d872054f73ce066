"""The classroom's signatures give the textbook's results."""

import pytest
import real_functions
import torch

from collectives.errors import InputError
from realcomm import classroom
from realcomm.launching.launcher import launch


@pytest.mark.parametrize("world_size", [2, 3])
def test_the_four_of_the_classroom(world_size: int):
    total = world_size * (world_size + 1) / 2
    for rank, (sent, reduced, both, ring) in enumerate(launch(real_functions.in_class, world_size)):
        assert sent == [2.0] * 5
        assert reduced == ([total / world_size] * 5 if rank == 1 else [])
        assert both == [total] * 5
        assert ring == [total / world_size] * 5


def test_without_a_group_the_message_says_so():
    with pytest.raises(InputError, match="init_process_group"):
        classroom.broadcast(torch.zeros(1), 0, 1)
