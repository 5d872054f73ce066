"""What NCCL's model says of described systems: limits that no run passes, and settings that are obeyed."""

import numpy as np
import pytest

from collectives.errors import InputError
from simcomm.nccl.descriptions import describe_system
from simcomm.nccl.predict import predict_collective, predict_seconds
from simcomm.nccl.settings import NcclSettings
from simcomm.nccl.timing import bus_factor

SIZES = 2.0 ** np.arange(3, 34)
LINES = {
    "a100": {"nodes": 1, "gpus": 8, "gpu": "A100 SXM"},
    "h100": {"nodes": 1, "gpus": 8, "gpu": "H100 SXM"},
    "h100 of two hosts": {"nodes": 2, "gpus": 8, "gpu": "H100 SXM", "net": "ib", "nic": 400},
    "4090": {"nodes": 1, "gpus": 4, "gpu": "RTX 4090"},
    "mesh": {"nodes": 1, "gpus": 8, "gpu": "V100 SXM2"},
    "efa": {"machine": "aws_p4d", "nodes": 4, "gpus": 8},
    "racks": {"machine": "coreweave_gb200", "nodes": 36, "gpus": 4},
    "cpu": {"nodes": 2, "gpus": 16, "gpu": "CPU", "net": "ib", "nic": 25},
}
SYSTEMS = {name: describe_system(name, line) for name, line in LINES.items()}
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send_recv")


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_times_are_finite_and_a_million_times_more_takes_longer(name, collective):
    times = predict_seconds(SYSTEMS[name], collective, SIZES)
    assert np.isfinite(times).all() and (times > 0).all()
    assert (times[20:] > times[:-20]).all()


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("proto", ["ll", "simple"])
def test_without_a_switch_of_algorithm_more_bytes_never_take_less(name, collective, proto):
    times = predict_seconds(SYSTEMS[name], collective, SIZES, settings=NcclSettings(algo="ring", proto=proto))
    opened = 0.8 if proto == "ll" else 1 - 1e-9  # a larger call may open more channels, each with its own rate
    assert (times[1:] >= opened * times[:-1]).all()


@pytest.mark.parametrize("name", ["a100", "h100", "4090", "mesh"])
@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "all_to_all"])
def test_no_ring_is_faster_than_the_line(name, collective):
    system = SYSTEMS[name]
    line = system.nvlink or 2.0 * system.lanes
    times = predict_seconds(system, collective, SIZES)
    assert (SIZES * bus_factor(collective, 8) / times / 1e9 < line).all()


def test_a_forced_ring_over_two_hosts_keeps_to_the_nics():
    settings = NcclSettings(algo="ring", proto="simple")
    times = predict_seconds(SYSTEMS["h100 of two hosts"], "all_reduce", SIZES, settings=settings)
    assert (SIZES * bus_factor("all_reduce", 16) / times / 1e9 < 400).all()


@pytest.mark.parametrize("algo", ["ring", "tree", "nvls"])
@pytest.mark.parametrize("nbytes", [1024, 2**20, 2**30])
def test_a_forced_algorithm_is_taken(algo, nbytes):
    found = predict_collective(SYSTEMS["h100"], "all_reduce", nbytes, settings=NcclSettings(algo=algo))
    assert found.algorithm == algo
    assert all(one.reason for one in found.candidates)


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="all_reduse"):
        predict_seconds(SYSTEMS["a100"], "all_reduse", [1024])
    with pytest.raises(InputError, match="at least 1"):
        predict_seconds(SYSTEMS["a100"], "all_reduce", [0])
    for wrong in ({"algo": "rings"}, {"proto": "LL256"}, {"p2p_level": "FAR"}, {"max_channels": 0}, {"version": "two"}):
        with pytest.raises(InputError):
            NcclSettings(**wrong)
