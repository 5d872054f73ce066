"""Every operation of a step with the layer that it belongs to, in forward and in backward.

Autograd numbers the nodes of its graph as forward makes them, so an operation of backward belongs to the layer in which
the node that executes it was made. That also holds for operations in place and for functions that no module wraps.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

WHOLE = "(model)"  # the layer of what the outermost module computes itself
LOSS = "loss"

OnOp = Callable[[str, bool, Any, Sequence[Any], dict[str, Any]], Any]  # layer, is_backward, op, arguments: its result


class WatchedOps(TorchDispatchMode, AbstractContextManager[Any]):
    """Within the context, carry out each operation by ``on_op``, which is told the layer.

    ``at(LOSS)`` is for what is computed outside of all modules.
    """

    def __init__(self, model: nn.Module, on_op: OnOp) -> None:
        super().__init__()
        self.on_op, self.is_backward = on_op, False
        self.stack: list[str] = [LOSS]
        self._made_in: dict[int, str] = {}  # by the number of a node of autograd
        self._hooks = ExitStack()
        self._model = model

    def __enter__(self) -> "WatchedOps":
        for name, module in self._model.named_modules():
            enter = module.register_forward_pre_hook(self._entering(name or WHOLE))
            self._hooks.callback(enter.remove)
            self._hooks.callback(module.register_forward_hook(self._leave, always_call=True).remove)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._hooks.close()

    def _entering(self, name: str) -> Callable[[nn.Module, Any], None]:
        def enter(module: nn.Module, given: Any) -> None:
            self.stack.append(name)

        return enter

    def _leave(self, module: nn.Module, given: Any, found: Any) -> None:
        self.stack.pop()

    @property
    def layer(self) -> str:
        """The layer of what is executed now."""
        if not self.is_backward:
            return self.stack[-1]
        node = torch._C._current_autograd_node()
        return self._made_in.get(node._sequence_nr(), "") if node is not None else ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.is_backward:
            self._made_in.setdefault(torch._C._autograd._get_sequence_nr() - 1, self.layer)
        return self.on_op(self.layer, self.is_backward, func, args, kwargs or {})
