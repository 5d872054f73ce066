"""A context for Ringlab's own tensor operations, without gradients, dispatch modes and torch function overrides."""

from types import TracebackType

import torch


class Neutral:
    """A context in which tensor operations bypass the ranks' modes and are not counted.

    In inference mode, writes do not change the version counters of tensors, as with a real backend.
    """

    __slots__ = ("_dispatch", "_functions", "_inference")

    def __enter__(self) -> None:
        self._inference = torch._C._InferenceMode(True)
        self._inference.__enter__()
        self._dispatch = torch._C._DisableTorchDispatch() if torch._C._len_torch_dispatch_stack() else None
        self._functions = torch._C.DisableTorchFunction()
        self._functions.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._functions.__exit__(kind, error, trace)
        self._dispatch = None  # deleting the guard ends it
        self._inference.__exit__(kind, error, trace)
