"""Replace attributes of modules and classes, and restore them."""

from collections.abc import Callable
from functools import wraps
from typing import Any

_MISSING = object()


class Replaced:
    """Replaces attributes of modules and classes until ``restore`` is called.

    ``me`` returns the rank of the calling thread, or None if the thread does not belong to a rank.

    >>> import math
    >>> replaced = Replaced()
    >>> replaced.put(math, "pi", 3)
    >>> replaced.wrap(math, "sqrt", lambda sqrt, x: -sqrt(x))
    >>> math.pi, math.sqrt(4.0)
    (3, -2.0)
    >>> replaced.restore(); math.sqrt(4.0), math.pi > 3
    (2.0, True)
    """

    def __init__(self, me: Callable[[], Any] = lambda: None) -> None:
        self._me = me
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        self._before.append((owner, name, getattr(owner, name, _MISSING)))
        setattr(owner, name, value)

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Replace a function by ``around``, which receives the original function before the arguments of a call."""
        original = getattr(owner, name)

        @wraps(original)
        def wrapped(*args: Any, **named: Any) -> Any:
            return around(original, *args, **named)

        self.put(owner, name, wrapped)

    def wrap_for_ranks(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Like ``wrap``, but only for calls by ranks. ``around`` receives the rank before the original function."""
        original, me = getattr(owner, name), self._me

        @wraps(original)
        def wrapped(*args: Any, **named: Any) -> Any:
            rank = me()
            return original(*args, **named) if rank is None else around(rank, original, *args, **named)

        self.put(owner, name, wrapped)

    def restore(self) -> None:
        for owner, name, before in reversed(self._before):
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self._before.clear()
