"""Change or remove one term of NCCL's model, to measure its contribution.

An ablation changes the model inside a ``with`` block and restores it afterwards. The parameters are refitted to the
changed model, so the comparison is fair.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import inf
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.studies import nccl_fit as fit
from simcomm.nccl import channels, choice, communicator, predict, timing, topology, tuner
from simcomm.nccl.choice import Choice
from simcomm.nccl.communicator import Communicator
from simcomm.nccl.parameters import Floats, Parameter, Parameters, read_definitions
from simcomm.nccl.timing import SHARPNESS, CandidateRoute, Candidates

WIDER = 3.0  # spreads of priors, in the ablation that trusts the tables more
CACHED = (communicator.make_communicator, topology.ring_hops, topology.exchange_rate)


@contextmanager
def replaced(module: ModuleType, name: str, value: object) -> Iterator[None]:
    """Replace a value of a module inside the ``with`` block."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


@contextmanager
def ablation(title: str) -> Iterator[None]:
    """Change the model inside the ``with`` block. Raise KeyError for an unknown title.

    >>> before = timing.OVERLAP
    >>> with ablation("launch and GPU time added in quadrature, not their maximum"):
    ...     timing.OVERLAP
    2.0
    >>> timing.OVERLAP == before
    True
    """
    with ExitStack() as stack:
        for module, name, value in ABLATIONS[title]:
            stack.enter_context(replaced(module, name, value))
        _forget()
        stack.callback(_forget)  # the first to be called at the end, and what is computed then is of the model again
        yield
    _forget()


def _forget() -> None:
    for function in CACHED:
        function.cache_clear()


_candidates, _make = timing.candidates, communicator.make_communicator
_protocol_reason, _tree_gain, _host_time = choice._protocol_reason, timing.tree_gain, timing.host_time


def _fastest(comm: Communicator, collective: str, sizes: Floats, values: Parameters) -> Candidates:
    """Return the candidates with the weights of a tuner that knows the model's own times."""
    candidates = _candidates(comm, collective, sizes, values)
    logs = np.array([-SHARPNESS * np.log(times) for times in candidates.times.values()])
    weights = np.exp(logs - logs.max(axis=0))
    weights /= weights.sum(axis=0)
    return replace(candidates, weights=dict(zip(candidates.times, weights, strict=True)))


def _no_plugin(comm: Communicator, protocol: str) -> float:
    return 0.0


def _any_protocol(comm: Communicator, collective: str, protocol: str) -> str:
    reason = _protocol_reason(comm, collective, protocol)
    return "" if reason.startswith("the plug-in for EFA") else reason


def _ll_by_links(
    comm: Communicator, choice: Choice, load: Floats, sizes: Floats, route: CandidateRoute, values: Parameters
) -> Floats:
    times: Floats = load * route.bandwidth / route.ll_bandwidth
    return times


def _no_messages(comm: Communicator, collective: str, algorithm: str, sizes: Floats, values: Parameters) -> Floats:
    return 0.0 * sizes


def _no_rate(comm: Communicator) -> float:
    return inf


def _all_of_nics(comm: Communicator) -> float:
    return 1.0


def _free_channels(comm: Communicator, collective: str, channels: Floats, values: Parameters) -> Floats:
    return _host_time(comm, collective, 0 * channels, values)


def _gain_of_two(comm: Communicator, share: float) -> float:
    return _tree_gain(comm, share) if comm.nodes == 2 else 1.0


def _trusting(system: Any, settings: Any) -> Communicator:
    return replace(_make(system, settings), nic_is_guessed=False)


def _unshared(host: topology.GpuHost, pairs: Any) -> list[float]:
    return [host.pcie_rate] * len(pairs)


def _no_factors(*_: object) -> float:
    return 1.0


def _wide_definitions() -> dict[str, Parameter]:
    return {
        name: replace(definition, spread=WIDER * definition.spread) for name, definition in read_definitions().items()
    }


Change = tuple[ModuleType, str, object]  # of a module's name to a value
ABLATIONS: Mapping[str, tuple[Change, ...]] = {
    "the model as it is": (),
    "NCCL picks the fastest candidate, not its tuner's choice": ((timing, "candidates", _fastest),),
    "tuner without the plug-in's latency": ((tuner, "_plugin", _no_plugin),),
    "all protocols allowed on EFA before p5": ((choice, "_protocol_reason", _any_protocol),),
    "LL without a rate limit per channel": ((timing, "_ll_load", _ll_by_links),),
    "LL: messages between nodes leave before they are complete": ((timing, "_ll_messages", _no_messages),),
    "no rate limit per channel; one channel can fill a NIC": (
        (channels, "channel_rate", _no_rate),
        (channels, "share_of_nics", _all_of_nics),
    ),
    "no launch time per channel": ((timing, "host_time", _free_channels),),
    "trees send fewer bytes on two nodes only": ((timing, "tree_gain", _gain_of_two),),
    "guessed NIC rates used without a factor": ((predict, "make_communicator", _trusting),),
    "flows don't share PCIe uplinks": ((topology, "share_links", _unshared),),
    "no factors of individual clusters": ((predict, "host_factors", _no_factors),),
    "launch and GPU time added in quadrature, not their maximum": ((timing, "OVERLAP", 2.0),),
    "priors three times as wide": ((fit, "read_definitions", _wide_definitions),),
}
