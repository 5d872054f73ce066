"""The compiled engine: the reference engine's answer at scale. What simulates is loaded when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simcomm.compiled.engine import approximately, by_segments, by_shortcut, one_by_one
    from simcomm.compiled.planning.engine_input import SharedInputs, busiest_link_seconds
    from simcomm.compiled.tcp.plan import Phases
    from simcomm.compiled.traces import make_trace
    from simcomm.compiled.training import simulate_tcp_training, simulate_training

__all__ = [
    "Phases",
    "SharedInputs",
    "approximately",
    "busiest_link_seconds",
    "by_segments",
    "by_shortcut",
    "make_trace",
    "one_by_one",
    "simulate_tcp_training",
    "simulate_training",
]

_HOME = {
    "Phases": "tcp.plan",
    "SharedInputs": "planning.engine_input",
    "approximately": "engine",
    "busiest_link_seconds": "planning.engine_input",
    "by_segments": "engine",
    "by_shortcut": "engine",
    "make_trace": "traces",
    "one_by_one": "engine",
    "simulate_tcp_training": "training",
    "simulate_training": "training",
}


def __getattr__(name: str) -> Any:
    """Import the module that a name is from."""
    if name in _HOME:
        return getattr(import_module(f"simcomm.compiled.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
