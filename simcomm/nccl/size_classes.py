"""Classes of sizes in which errors are counted: they fail for different reasons."""

import numpy as np
from numpy.typing import NDArray

SIZE_CLASSES = {"small": 64 * 1024, "mid": 16 * 1024**2, "large": float("inf")}  # most bytes of each


def class_mask(size_class: str, nbytes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which sizes are of a class.

    >>> class_mask("mid", np.array([65536.0, 65537.0, 1e9]))
    array([False,  True, False])
    """
    names = list(SIZE_CLASSES)
    above = 0.0 if size_class == names[0] else SIZE_CLASSES[names[names.index(size_class) - 1]]
    return (nbytes > above) & (nbytes <= SIZE_CLASSES[size_class])
