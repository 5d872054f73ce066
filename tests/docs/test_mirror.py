"""simcomm and realcomm have the same functions."""

from inspect import Parameter, signature

import pytest

import realcomm
import simcomm

LEADING = {"run": ("algorithm", "cluster", "nbytes", "dtype", "op", "root", "buffers"), "train": ()}


@pytest.mark.parametrize("name", LEADING)
def test_simcomm_and_realcomm_functions_have_equal_parameters(name: str):
    simulated, real = (dict(signature(getattr(package, name)).parameters) for package in (simcomm, realcomm))
    shared = [argument for argument in simulated if argument in real]
    assert len(shared) > 1 and (*shared[: len(LEADING[name])],) == LEADING[name]
    for parameters in (simulated, real):
        assert [*parameters][: len(LEADING[name]) or 2] == shared[: len(LEADING[name]) or 2]
        others = [parameter for argument, parameter in parameters.items() if argument not in shared]
        assert all(each.kind is Parameter.KEYWORD_ONLY and each.default is not Parameter.empty for each in others)
    for argument in shared:
        assert simulated[argument].replace(annotation=None) == real[argument].replace(annotation=None)
