"""Types of the arrays that the compiled engine works on."""

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
LongInts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Records = npt.NDArray[Any]  # of one of the record types that the kernel's modules define
