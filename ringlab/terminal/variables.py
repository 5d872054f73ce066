"""What the environment tells a command, checked at the door, and where torch, which reads more of it, is imported."""

import importlib.abc
import sys


class CheckedTorch(importlib.abc.MetaPathFinder):
    """Has torch's own variables checked when torch is about to be imported; it finds no module itself."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        """Raise InputError instead of an import that would die of a variable."""
        if name == "torch":
            from realcomm.launching.torch_variables import check_torch_variables

            check_torch_variables()


CHECKED_TORCH = CheckedTorch()


def check_environment() -> None:
    """Raise InputError for a variable that is not what it may be, now or when torch is imported."""
    from collectives.variables import check_variables

    check_variables()
    if CHECKED_TORCH not in sys.meta_path:
        sys.meta_path.insert(0, CHECKED_TORCH)
