"""Types of the arrays that the compiled engine works on, and what stands for no entry of one."""

from typing import Any

import numpy as np
import numpy.typing as npt

NOBODY = np.int64(-1)  # not the literal -1, for which numba would compile every function that takes it once more

Ints = npt.NDArray[np.int32]
LongInts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Records = npt.NDArray[Any]  # of one of the record types that the kernel's modules define
