"""Predict, run, compare and see how a training job scales: what the command line gives, for notebooks and scripts.

>>> import ringlab
>>> scenario = ringlab.load("star8", "cluster.hosts=4")  # or a file; overrides are those of --set
>>> answer = scenario.predict()  # also .run(), .compare() and .animate(...)
>>> answer.collectives[0].world_size, answer.to_dict()["kind"]
(4, 'prediction')

Nothing is imported before it is used, so that ``ringlab --help`` does not wait for it.
"""

from importlib import import_module
from typing import Any

from collectives import exports_of

_export, __dir__, __all__ = exports_of(__name__)


def __getattr__(name: str) -> Any:
    return import_module("importlib.metadata").version("ringlab") if name == "__version__" else _export(name)
