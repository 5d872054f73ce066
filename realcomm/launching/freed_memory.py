"""Memory that a process frees stays with it, so that a training step does not fetch it from the kernel again."""

import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
MOST_FREE = 2**31 - 1  # bytes at the end of the heap that are not given back
LARGEST = 32 << 20  # bytes of the largest piece that the heap takes; the most that glibc accepts


def keep_freed_memory() -> None:
    """Have the C library keep freed memory for the next allocation, in pieces of up to 32 MiB.

    By itself glibc gives it back to the kernel, or not, by how the heap happens to lie: one process then fetches the
    pages of a step's activations in each step anew, for as long as it lives, and its neighbour never does. What the
    environment says of glibc's memory holds, and other C libraries and allocators do as they always do.

    >>> keep_freed_memory()
    """
    told = [name for name in os.environ if name.startswith("MALLOC_") or name == "GLIBC_TUNABLES"]
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not told:
        mallopt(M_MMAP_THRESHOLD, LARGEST)
        mallopt(M_TRIM_THRESHOLD, MOST_FREE)
