"""One call of a collective as a value: what both wings are asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.catalogue import Algorithm, find_algorithm
from collectives.elements import check_op, item_bytes
from collectives.errors import InputError
from collectives.lengths import check_length, rounded_down

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Request:
    """Which algorithm, on how many elements of which type, with which operator and root.

    >>> from collectives import find_algorithm
    >>> Request(find_algorithm("all_reduce/ring"), elements=1024).nbytes
    4096
    """

    algorithm: Algorithm
    elements: int  # of each rank's buffer
    dtype: str = "float32"
    op: str = "sum"
    root: int = 0

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return item_bytes(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of each rank's buffer."""
        return self.elements * self.itemsize

    def check(self, world_size: int) -> None:
        """Raise InputError unless ``world_size`` ranks can be asked for this."""
        check_op(self.op, self.dtype)
        if not 0 <= self.root < world_size:
            raise InputError(f"root {self.root} is not one of the ranks 0..{world_size - 1}")
        check_length(self.algorithm, self.elements, world_size)


def make_request(
    algorithm: str | Algorithm,
    world_size: int,
    nbytes: int | None = None,
    *,
    dtype: str = "float32",
    op: str = "sum",
    root: int = 0,
    buffers: Sequence[Array] | None = None,
) -> Request:
    """Return the request for ``nbytes`` bytes a rank, or for ``buffers``: one 1-D array of one length and type a rank.

    Sizes are rounded down to whole elements and, where the algorithm needs it, to equal chunks. Raises InputError for
    whatever cannot be asked of so many ranks.

    >>> make_request("all_to_all/pairwise", world_size=3, nbytes=1000).elements
    249
    """
    algorithm = find_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    if buffers is not None:
        dtype, elements = _shape(algorithm, world_size, buffers)
        check_op(op, dtype)
    elif nbytes is None or not isinstance(nbytes, int | np.integer) or nbytes < 0:
        raise InputError(
            f"{algorithm.full_name}: nbytes is {nbytes!r}; give a whole number of bytes from 0 on, or buffers"
        )
    else:
        check_op(op, dtype)
        elements = rounded_down(algorithm, int(nbytes) // item_bytes(dtype), world_size)
    request = Request(algorithm, elements, dtype, op, root)
    request.check(world_size)
    return request


def _shape(algorithm: Algorithm, world_size: int, buffers: Sequence[Array]) -> tuple[str, int]:
    """Return type and number of the elements of each buffer. Raises InputError unless all ranks' are alike."""
    kinds = {(buffer.shape, buffer.dtype.name) for buffer in buffers}
    if len(buffers) != world_size or len(kinds) != 1 or buffers[0].ndim != 1:
        raise InputError(
            f"{algorithm.full_name}: buffers are {sorted(kinds)}, {len(buffers)} of them; "
            f"{world_size} of one length and type are needed, each with one dimension"
        )
    return buffers[0].dtype.name, buffers[0].size
