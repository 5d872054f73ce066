"""Players, pictures and films of a Trace, pictures of a topology, of winners and of accuracy, and the report as HTML.

A function is loaded, with the drawing libraries that it needs, when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from viz.accuracy import Dots, draw_accuracy
    from viz.curves import Curve, SweepLine, draw_scaling, draw_sweep
    from viz.file_types import check_file
    from viz.film.animation import animate
    from viz.fronts import Priced, draw_money
    from viz.path_strip import draw_path
    from viz.perfetto import write_perfetto
    from viz.pictures import draw
    from viz.player.page import write_player
    from viz.player.runs import PlayedRun
    from viz.report import write_report
    from viz.rings import Rings, draw_rings
    from viz.space_time import draw_space_time
    from viz.topology import draw_topology
    from viz.waterfall import Bar, draw_waterfall
    from viz.winners import Winners, draw_winners

_MODULES = {
    "Bar": "viz.waterfall",
    "Curve": "viz.curves",
    "Dots": "viz.accuracy",
    "PlayedRun": "viz.player.page",
    "Priced": "viz.fronts",
    "Rings": "viz.rings",
    "SweepLine": "viz.curves",
    "Winners": "viz.winners",
    "check_file": "viz.file_types",
    "animate": "viz.film.animation",
    "draw": "viz.pictures",
    "draw_accuracy": "viz.accuracy",
    "draw_money": "viz.fronts",
    "draw_path": "viz.path_strip",
    "draw_rings": "viz.rings",
    "draw_scaling": "viz.curves",
    "draw_space_time": "viz.space_time",
    "draw_sweep": "viz.curves",
    "draw_topology": "viz.topology",
    "draw_waterfall": "viz.waterfall",
    "draw_winners": "viz.winners",
    "write_perfetto": "viz.perfetto",
    "write_player": "viz.player.page",
    "write_report": "viz.report",
}

__all__ = [
    "Bar",
    "Curve",
    "Dots",
    "PlayedRun",
    "Priced",
    "Rings",
    "SweepLine",
    "Winners",
    "animate",
    "check_file",
    "draw",
    "draw_accuracy",
    "draw_money",
    "draw_path",
    "draw_rings",
    "draw_scaling",
    "draw_space_time",
    "draw_sweep",
    "draw_topology",
    "draw_waterfall",
    "draw_winners",
    "write_perfetto",
    "write_player",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return all names, also those that are not loaded yet, so that they complete in a shell."""
    return sorted({*globals(), *__all__})
