"""simcomm and realcomm have the same functions."""

from inspect import Parameter, signature

import pytest

import realcomm
import simcomm


@pytest.mark.parametrize("name", ["run", "train"])
def test_simcomm_and_realcomm_share_arguments(name: str):
    simulated, real = signature(getattr(simcomm, name)), signature(getattr(realcomm, name))
    shared = simulated.parameters.keys() & real.parameters.keys()
    assert [p.replace(annotation=None) for n, p in simulated.parameters.items() if n in shared] == [
        p.replace(annotation=None) for n, p in real.parameters.items() if n in shared
    ]
    for parameters in (simulated.parameters, real.parameters):
        others = [p for n, p in parameters.items() if n not in shared]
        assert all(p.kind is Parameter.KEYWORD_ONLY and p.default is not Parameter.empty for p in others)


def test_simcomm_and_realcomm_share_leading_arguments():
    first = ["algorithm", "cluster", "nbytes", "dtype", "op", "root", "buffers"]
    assert [*signature(simcomm.run).parameters][:7] == [*signature(realcomm.run).parameters][:7] == first
    assert [*signature(simcomm.train).parameters][:2] == [*signature(realcomm.train).parameters][:2]
