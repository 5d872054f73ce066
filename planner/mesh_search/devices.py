"""GPUs as columns need them: rates of the hardware catalogue, and the names that published runs give them."""

from functools import cache
from typing import NamedTuple

from collectives.errors import InputError
from collectives.units import parse_bandwidth
from simcomm.cluster.hardware import find_link, find_part, memory_bytes

GENERATIONS = ("other", "ampere", "hopper", "blackwell")
USUAL_PCIE = "PCIe 4.0 x16"  # where the catalogue does not say it
MULTIPROCESSORS = 100  # where the catalogue does not say them
NAMES = {"A100": "A100 80GB SXM", "H100": "H100 SXM", "H100-500W": "H100 SXM", "H200": "H200 SXM"}
PUBLISHED = ("A100 80GB SXM", "H100 SXM", "H200 SXM", "B200", "B300", "GB200", "GB300")  # runs of the fit are on these
BY_AGE = ("kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell")
FIRST = {"bf16": "ampere", "tf32": "ampere", "fp8": "ada", "mxfp8": "blackwell", "nvfp4": "blackwell"}  # to multiply it
HBM2E_RATE = 2.4e12  # assumed: five stacks of HBM2e, of H100s that are limited to 500 W


class MeshGpu(NamedTuple):
    """Rates of a data sheet: FLOPs a second of matrices of 16, 8 and 4 bits, bytes a second of memory and NVLink."""

    generation: str
    vector_32: float  # products of float32 without tensor cores
    matrix_32: float  # with them (tf32), where there are any
    matrix_16: float
    matrix_8: float
    matrix_4: float  # those of 8 bits where there are none of 4, else of 16
    memory_rate: float
    peer_rate: float  # to another GPU of the node, each way
    multiprocessors: float
    host_rate: float  # to and from its host's memory, each way
    memory_bytes: float
    is_limited: bool  # by power


def is_mesh_gpu(name: str) -> bool:
    """Return whether the catalogue says enough of a GPU.

    >>> is_mesh_gpu("H100 SXM"), is_mesh_gpu("H9000")
    (True, False)
    """
    try:
        return bool(find_mesh_gpu(name))
    except InputError:
        return False


def can_multiply(gpu: str, precision: str) -> bool:
    """Return whether a GPU of the catalogue multiplies matrices in a precision, by NVIDIA's data sheets.

    >>> can_multiply("A100 80GB SXM", "fp8"), can_multiply("H100 SXM", "fp8"), can_multiply("H100 SXM", "nvfp4")
    (False, True, False)
    """
    generation = find_part("GPU", gpu)["generation"].value
    first = FIRST.get(precision)
    return first is None or generation not in BY_AGE or BY_AGE.index(generation) >= BY_AGE.index(first)


@cache
def find_mesh_gpu(name: str) -> MeshGpu:
    """Return what columns need of a GPU, by its name in the catalogue or in published runs.

    Raises InputError for a GPU that is not in the catalogue, or of which it does not say enough.

    >>> find_mesh_gpu("H100").matrix_16
    989000000000000.0
    """
    part = NAMES.get(name, name)
    figures = find_part("GPU", part)
    missing = [key for key in ("fp16", "memory", "memory_bandwidth") if key not in figures]
    if missing:
        raise InputError(f"GPU {part}: the catalogue does not say its {', '.join(missing)}")

    def rate(*quantities: str) -> float:
        known = next(figures[quantity].value for quantity in quantities if quantity in figures)
        return float(known.split()[0]) * 1e12

    generation = figures["generation"].value
    is_limited = name == "H100-500W"
    memory = memory_bytes(part)
    assert memory is not None
    return MeshGpu(
        generation=generation if generation in GENERATIONS else "other",
        vector_32=rate("fp32", "fp16"),
        matrix_32=rate("tf32", "fp32", "fp16"),
        matrix_16=rate("fp16"),
        matrix_8=rate("fp8", "fp16"),
        matrix_4=rate("fp4", "fp8", "fp16"),
        memory_rate=HBM2E_RATE if is_limited else float(parse_bandwidth(figures["memory_bandwidth"].value)),
        peer_rate=find_link(figures["nvlink" if "nvlink" in figures else "pcie"].value).bandwidth,
        host_rate=find_link(figures["pcie"].value if "pcie" in figures else USUAL_PCIE).bandwidth,
        multiprocessors=float(figures["multiprocessors"].value) if "multiprocessors" in figures else MULTIPROCESSORS,
        memory_bytes=memory,
        is_limited=is_limited,
    )
