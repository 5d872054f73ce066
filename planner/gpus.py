"""Describe GPUs by their data sheets."""

from collections.abc import Sequence
from functools import cache
from math import inf
from typing import NamedTuple

from collectives.quoting import name_some
from collectives.units import parse_bandwidth
from simcomm.cluster.hardware import find_link, find_part, memory_bytes

GENERATIONS = ("other", "ampere", "hopper", "blackwell")  # of the GPUs in published runs of language models
PUBLISHED = ("A100 80GB SXM", "H100 SXM", "H200 SXM", "B200", "B300", "GB200", "GB300")  # in published runs
RUN_NAMES = {"A100": "A100 80GB SXM", "H100": "H100 SXM", "H100-500W": "H100 SXM", "H200": "H200 SXM"}
PRECISIONS = {  # the field of ``Gpu`` with the rate of matrix products
    "bf16": "matrix_16", "fp16": "matrix_16", "fp8": "matrix_8", "mxfp8": "matrix_8", "nvfp4": "matrix_4",
    "tf32": "matrix_32", "float32": "vector_32",
}  # fmt: skip
BY_AGE = ("kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell")
FIRST = {"bf16": "ampere", "tf32": "ampere", "fp8": "ada", "mxfp8": "blackwell", "nvfp4": "blackwell"}
USUAL_MULTIPROCESSORS = 100  # if the catalog does not state them
HBM2E_RATE = 2.4e12  # assumed for H100s with a 500 W limit: five stacks of HBM2e


class Gpu(NamedTuple):
    """A GPU's data sheet, with rates in FLOP/s and bytes/s.

    If the sheet lacks the rate of a precision, the field has the rate of another precision.
    """

    name: str
    generation: str
    year: int
    vector_32: float  # float32 without tensor cores
    matrix_32: float  # TF32, or float32 if the GPU has no TF32
    matrix_16: float
    matrix_8: float
    matrix_4: float
    memory_rate: float
    memory_bytes: float = inf  # inf: unknown, so memory is not checked
    peer_rate: float = 0.0  # to another GPU of the host, one-way
    multiprocessors: float = USUAL_MULTIPROCESSORS
    watts: float | None = None
    has_tf32: bool = False
    is_limited: bool = False  # power limit below the data sheet's

    def peak(self, precision: str) -> float:
        """Return the peak FLOP/s of matrix products. ``precision`` must be in ``PRECISIONS``."""
        return float(getattr(self, PRECISIONS[precision]))


ANY_GPU = Gpu("a device", "other", 0, 1.0, 1.0, 1.0, 1.0, 1.0, inf)  # an unknown device


@cache
def find_gpu(name: str) -> Gpu:
    """Return a GPU by its name in the catalog or in published runs. Raise InputError if the name is unknown.

    >>> find_gpu("H100") == find_gpu("H100 SXM"), find_gpu("L40S").matrix_16
    (True, 362000000000000.0)
    """
    part = RUN_NAMES.get(name, name)
    figures = {quantity: figure.value for quantity, figure in find_part("GPU", part).items()}

    def rate(*quantities: str) -> float:
        return float(next(figures[quantity] for quantity in quantities if quantity in figures).split()[0]) * 1e12

    generation, is_limited, pcie = figures["generation"], name == "H100-500W", figures["pcie"]
    return Gpu(
        name=part,
        generation=generation if generation in GENERATIONS else "other",
        year=int(find_part("generation", generation)["year"].value),
        vector_32=rate("fp32", "fp16"),
        matrix_32=rate("tf32", "fp32", "fp16"),
        matrix_16=rate("fp16", "fp32"),
        matrix_8=rate("fp8", "fp16", "fp32"),
        matrix_4=rate("fp4", "fp8", "fp16", "fp32"),
        memory_rate=HBM2E_RATE if is_limited else float(parse_bandwidth(figures["memory_bandwidth"])),
        memory_bytes=memory_bytes(part) or inf,
        peer_rate=find_link(figures.get("nvlink", pcie)).bandwidth,
        multiprocessors=float(figures.get("multiprocessors", USUAL_MULTIPROCESSORS)),
        watts=float(figures["power"].split()[0]) if "power" in figures else None,
        has_tf32="tf32" in figures,
        is_limited=is_limited,
    )


SERIES_NAMES = {"V100": "V100 SXM2", "P100": "P100 SXM2", "A100": "A100 40GB SXM", "A100-80": "A100 80GB SXM"}


def find_series_gpu(name: str) -> Gpu:
    """Return a GPU by its name in published series or in the catalog. Raise InputError if the GPU is unknown."""
    known_as = SERIES_NAMES.get(name, name)
    find_part("GPU", known_as)  # raises InputError for the names of published runs
    return find_gpu(known_as)._replace(name=name)


def is_published(name: str) -> bool:
    """Return whether a published run trained a language model on this GPU, or on the same GPU with another memory size.

    >>> is_published("A100 40GB SXM"), is_published("RTX 4090")
    (True, False)
    """
    boards = [(find_part("GPU", gpu).get("board"), gpu) for gpu in (name, *PUBLISHED)]
    own, *published = (gpu if board is None else board.value for board, gpu in boards)
    return own in published


def describe_unpublished(gpus: Sequence[str]) -> str:
    """Return a clause about GPUs without runs, such as "no published run is on L40S, so predictions use ..."."""
    sheets = "its data sheet" if len(gpus) == 1 else "their data sheets"
    return f"no published run is on {name_some(gpus)}, so predictions use {sheets}"


def can_multiply(gpu: str, precision: str) -> bool:
    """Return whether an NVIDIA GPU's generation supports this precision. Return True for GPUs of other vendors.

    >>> can_multiply("A100 80GB SXM", "fp8"), can_multiply("H100 SXM", "fp8"), can_multiply("H100 SXM", "nvfp4")
    (False, True, False)
    """
    generation, first = find_part("GPU", gpu)["generation"].value, FIRST.get(precision)
    return first is None or generation not in BY_AGE or BY_AGE.index(generation) >= BY_AGE.index(first)
