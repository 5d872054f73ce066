"""Data is moved outside of the running rank's modes: no gradients, no dispatch modes, no torch functions."""

from types import TracebackType

import torch


class Neutral:
    """A context in which what torch does is nobody's: a rank's modes neither see nor count it.

    It is the inference mode, which leaves versions of tensors as they are, as a backend's own writing does.
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
        self._dispatch = None  # its end is the guard's
        self._inference.__exit__(kind, error, trace)
