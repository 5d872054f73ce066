"""A context for Ringlab's own tensor operations."""

from typing import Any

import torch


class Neutral:
    """A context in which tensor operations bypass the ranks' torch modes, so they are not counted as compute.

    In inference mode, writes do not change the version counters of tensors, as with a real backend.
    """

    __slots__ = ("_dispatch", "_functions", "_inference")

    def __enter__(self) -> None:
        self._inference = torch._C._InferenceMode(True)
        self._inference.__enter__()
        self._dispatch = torch._C._DisableTorchDispatch() if torch._C._len_torch_dispatch_stack() else None
        self._functions = torch._C.DisableTorchFunction()
        self._functions.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._functions.__exit__(*raised)
        self._dispatch = None  # deleting the guard ends it
        self._inference.__exit__(*raised)
