"""Describe a collective call, and compute the sizes of its buffers.

Buffers can have any length, except that the chunks of an all_to_all must be equally large, because data moves between
chunks. The buffer of a barrier is its token. It must not be empty, because empty messages are not sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.catalogue import find_algorithm, no_algorithm
from collectives.checks import check_ranks, check_whole_number
from collectives.declaration import Algorithm, check_applies
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.spec import ITEM_BYTES, Spec, check_op, item_bytes
from collectives.units import as_bytes

Array = npt.NDArray[Any]
DTYPES = [np.dtype(name) for name in ITEM_BYTES if name != "bfloat16"]  # numpy has no bfloat16


@dataclass(frozen=True)
class CollectiveCall:
    """One call of a collective: its algorithm, operator and root, and the number and type of the elements on each rank.

    >>> from collectives import find_algorithm
    >>> CollectiveCall(find_algorithm("all_reduce/ring"), elements=1024).nbytes
    4096
    """

    algorithm: Algorithm
    elements: int  # of each rank's buffer
    dtype: str = "float32"
    op: str = "sum"
    root: int = 0

    @property
    def spec(self) -> Spec:
        return self.algorithm.spec

    @property
    def itemsize(self) -> int:
        """The size of one element in bytes."""
        return item_bytes(self.dtype)

    @property
    def nbytes(self) -> int:
        """The size of each rank's buffer in bytes."""
        return self.elements * self.itemsize

    @property
    def shape(self) -> tuple[str, int]:
        """The data type and the number of elements of each rank's buffer."""
        return self.dtype, self.elements

    def with_algorithm(self, algorithm: Algorithm, world_size: int) -> "CollectiveCall":
        """Return a copy with another algorithm. The length is rounded down if chunks must have equal sizes."""
        return replace(self, algorithm=algorithm, elements=round_down(algorithm, self.elements, world_size))

    def check(self, world_size: int) -> None:
        """Raise InputError if the call is invalid for ``world_size`` ranks."""
        if not isinstance(self.algorithm, Algorithm):
            raise no_algorithm(self.algorithm)
        check_whole_number("elements", self.elements, at_least=0)
        check_op(self.op, self.dtype)
        check_applies(self.algorithm, op=self.op != "sum", root=self.root != 0)
        check_ranks(world_size, self.root)
        check_length(self.algorithm, self.elements, world_size)


def make_call(
    algorithm: str | Algorithm | CollectiveCall,
    world_size: int,
    nbytes: int | str | None = None,
    *,
    dtype: str | None = None,
    op: str | None = None,
    root: int | None = None,
    buffers: Sequence[Array] | None = None,
) -> CollectiveCall:
    """Return a call for ``nbytes`` bytes per rank, or for the given ``buffers``.

    ``nbytes`` is a number or text such as "1 MiB". It is rounded down to whole elements, and to chunks of equal size if
    the algorithm needs them. ``buffers`` has a one-dimensional array for each rank. Defaults: float32 elements,
    operator sum, root 0.

    If ``algorithm`` is a CollectiveCall, it is checked and returned. Raise InputError for invalid arguments.

    >>> make_call("all_to_all/pairwise", world_size=3, nbytes=1000).elements
    249
    """
    if isinstance(algorithm, CollectiveCall):
        arguments = {"nbytes": nbytes, "dtype": dtype, "op": op, "root": root}
        if names := " and ".join(name for name, value in arguments.items() if value is not None):
            raise InputError(f"{names} must not be passed with a CollectiveCall; use dataclasses.replace on the call")
        call = algorithm
        call.check(world_size)
        if buffers is not None and check_buffers(call.algorithm, world_size, buffers) != call.shape:
            raise InputError(f"buffers must have {call.elements} elements of {call.dtype}, as in the CollectiveCall")
        return call
    algorithm = find_algorithm(algorithm)
    check_applies(algorithm, op=op is not None, root=root is not None)
    op, root = "sum" if op is None else op, 0 if root is None else root
    if buffers is None:
        dtype = "float32" if dtype is None else dtype
        call = CollectiveCall(algorithm, _elements(algorithm, world_size, nbytes, dtype, op), dtype, op, root)
    else:
        buffer_dtype, elements = check_buffers(algorithm, world_size, buffers)
        call = CollectiveCall(algorithm, elements, buffer_dtype, op, root)
        _check_same(algorithm, "dtype", dtype, buffer_dtype)
        _check_same(algorithm, "nbytes", None if nbytes is None else as_bytes(nbytes, "nbytes"), call.nbytes)
    call.check(world_size)
    return call


def _check_same(algorithm: Algorithm, name: str, value: object, actual: object) -> None:
    if value not in (None, actual):
        raise InputError(f"{algorithm.full_name}: {name} is {value}, but the buffers have {actual}; remove {name}")


def _elements(algorithm: Algorithm, world_size: int, nbytes: object, dtype: str, op: str) -> int:
    size = as_bytes(nbytes, f"{algorithm.full_name}: nbytes", instead=" (or pass buffers)")
    check_op(op, dtype)
    elements = round_down(algorithm, size // item_bytes(dtype), world_size)
    least = algorithm.least_elements(world_size)
    if elements < least:
        minimum = "one element" if least == 1 else "an element for each rank"
        raise InputError(
            f"{algorithm.full_name}: the size must be at least {least * item_bytes(dtype)} bytes on "
            f"{world_size} ranks ({minimum}), not {size}"
        )
    return elements


def check_buffers(algorithm: Algorithm, world_size: int, buffers: Sequence[Array]) -> tuple[str, int]:
    """Return the dtype and the number of elements, which must be the same for all buffers.

    Raise InputError if there is not one writable, one-dimensional numpy array per rank, if their dtypes or lengths
    differ, if the dtype is not supported, or if elements share memory.
    """
    where = f"{algorithm.full_name}: buffers"
    argument: object = buffers
    if not isinstance(argument, Sequence | np.ndarray) or isinstance(argument, str):
        raise InputError(f"{where} must be a list with one numpy array per rank, not {quote(buffers)}")
    if len(buffers) != world_size:
        raise InputError(f"{where} must have one numpy array for each of the {world_size} ranks, not {len(buffers)}")
    for rank, buffer in enumerate(buffers):
        problem = _problem_of(buffer) or _difference(buffer, buffers[0])
        if problem:
            raise InputError(f"{where}[{rank}] {problem}")
    shared = _sharing(buffers)
    if shared:
        raise InputError(f"{where}[{shared[0]}] and buffers[{shared[1]}] share memory; pass a separate array per rank")
    return buffers[0].dtype.name, buffers[0].size


def _problem_of(buffer: Any) -> str:
    if type(buffer) not in (np.ndarray, np.memmap):
        instead = "numpy.asarray(buffer)" if isinstance(buffer, np.ndarray) else "a numpy array for each rank"
        return f"is a {type(buffer).__name__}; pass {instead}"
    if buffer.ndim != 1:
        return f"must have one dimension, not the shape {buffer.shape}"
    if buffer.dtype not in DTYPES:
        return f"has the unsupported dtype {quote(buffer.dtype.str)}; use one of {', '.join(map(str, DTYPES))}"
    if not buffer.flags.writeable:
        return "is read-only; pass a copy"
    if buffer.size > 1 and abs(buffer.strides[0]) < buffer.itemsize:
        return "has elements that share memory; pass a copy"
    return ""


def _difference(buffer: Array, first: Array) -> str:
    if (buffer.size, buffer.dtype) == (first.size, first.dtype):
        return ""
    return (
        f"has {buffer.size} elements of {buffer.dtype}; buffers[0] has {first.size} of {first.dtype}: make them equal"
    )


def _sharing(buffers: Sequence[Array]) -> tuple[int, int] | None:
    bounds = [np.lib.array_utils.byte_bounds(buffer) for buffer in buffers]
    order = sorted(range(len(buffers)), key=lambda rank: bounds[rank])
    for place, rank in enumerate(order):
        for other in order[place + 1 :]:
            if bounds[other][0] >= bounds[rank][1]:
                break
            if np.shares_memory(buffers[rank], buffers[other]):
                return min(rank, other), max(rank, other)
    return None


def round_down(algorithm: Algorithm, n: int, world_size: int) -> int:
    """Return ``n``, rounded down to a multiple of the number of chunks if the algorithm needs chunks of equal size."""
    return n - n % algorithm.chunks(world_size) if algorithm.needs_equal_chunks else n


def check_length(algorithm: Algorithm, n: int, world_size: int) -> None:
    """Raise InputError if the algorithm cannot run on buffers of ``n`` elements."""
    chunks = algorithm.chunks(world_size)
    if algorithm.needs_equal_chunks and n % chunks:
        raise InputError(
            f"{algorithm.full_name}: the number of elements must be a multiple of the {chunks} chunks, not {n}"
        )
    if algorithm.spec.repeats and n < 1:
        raise InputError(f"{algorithm.full_name}: each buffer must have at least one element")


def part_slice(parts: int | range, n: int, world_size: int) -> slice:
    """Return the slice that selects one part, or a range of parts, in a buffer of ``n`` elements.

    A buffer has ``world_size`` parts. Part i covers the elements ``[i * n // world_size, (i + 1) * n // world_size)``.
    """
    first, end = (parts, parts + 1) if isinstance(parts, int) else (parts.start, parts.stop)
    return slice(first * n // world_size, end * n // world_size)


def reduced_slice(spec: Spec, rank: int, world_size: int, root: int, n: int) -> slice:
    """Return the slice of a rank's buffer that contains reduced data after the collective. It may be empty."""
    return part_slice(spec.result(rank, world_size, root) if spec.reduces else range(0), n, world_size)


def reduced_counts(spec: Spec, world_size: int, root: int, n: int) -> npt.NDArray[np.int64]:
    """Return how many elements of each rank's buffer contain reduced data after the collective; shape [world_size]."""
    if not spec.reduces:
        return np.zeros(world_size, np.int64)
    parts = spec.result((root + 1) % world_size, world_size, root)
    own_sizes = np.diff(np.arange(world_size + 1) * n // world_size)
    counts = own_sizes if len(parts) == 1 else np.full(world_size, n if parts else 0)
    if spec.rooted:
        at_root = reduced_slice(spec, root, world_size, root, n)
        counts[root] = at_root.stop - at_root.start
    return counts
