"""Replace attributes of modules and classes, and restore them."""

from typing import Any

_MISSING = object()


class Replaced:
    """Replaces attributes of modules and classes, and restores them.

    >>> import math
    >>> replaced = Replaced()
    >>> replaced.put(math, "pi", 3)
    >>> replaced.restore(); math.pi > 3
    True
    """

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        self._before.append((owner, name, getattr(owner, name, _MISSING)))
        setattr(owner, name, value)

    def restore(self) -> None:
        """Restore all attributes in reverse order."""
        for owner, name, before in reversed(self._before):
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self._before.clear()
