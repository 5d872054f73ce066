"""Data is moved outside of the running rank's modes: no gradients, no dispatch modes, no torch functions."""

from types import TracebackType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes


class Neutral:
    """A context in which what torch does is nobody's: a rank's modes neither see nor count it."""

    def __enter__(self) -> None:
        self._entered: list[Any] = [torch.inference_mode()]
        if torch._C._len_torch_dispatch_stack():
            self._entered.append(_disable_current_modes())
        self._entered.append(torch._C.DisableTorchFunction())
        for context in self._entered:
            context.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for context in reversed(self._entered):
            context.__exit__(kind, error, trace)
