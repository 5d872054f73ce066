"""The keys of described nodes, links, GPUs and series, and what each may be: strict, for files of strangers."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from collectives.errors import InputError
from collectives.quoting import describe_accepted

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Rate = Annotated[float, Field(ge=1e-9, le=1e15, allow_inf_nan=False)]  # what is computed from these stays finite
Name = Annotated[str, Field(min_length=1, max_length=200)]
Word = Annotated[str, Field(max_length=2000)]
Sync = Literal["ddp", "after", "ps", "none"]
Loader = Literal["synthetic", "dali", "decode", "text"]


class _Keys(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class NodeKeys(_Keys):
    """A machine: its GPUs, what joins them as it works, CPU cores, and GB/s of all its NICs in one direction."""

    gpus: Count
    link: Name
    cores: Count
    nic_GBps: Rate  # noqa: N815 - as the file has it
    machine: Name | None = None  # of the hardware catalogue, whose PCIe links it has
    note: Word = ""


class GpuKeys(_Keys):
    """A GPU by its data sheet: TFLOP/s as they are used, GB/s of its memory, the watts it may take, year."""

    fp32: Rate
    memory_GBps: Rate  # noqa: N815 - as the file has it
    year: Annotated[int, Field(ge=2000, le=2100)]
    tf32: Rate | None = None
    fp16: Rate | None = None
    watts: Rate | None = None
    note: Word = ""


class SameGpuKeys(_Keys):
    """A GPU whose figures are those of the hardware catalogue."""

    catalogue: Name
    note: Word = ""


class SeriesKeys(_Keys):
    """What a prediction may know of a series, and its points: GPUs, nodes, samples/s of all GPUs."""

    source: Name
    system: Name
    model: Name
    parameters: Annotated[int, Field(ge=1, le=10**15)] | None = None  # of a model that is not known
    flops: Rate | None = None  # of its forward pass of a sample
    framework: Word = ""
    precision: Word
    gpu: Name
    node: Name
    batch: Rate
    grad_bytes: Literal[1, 2, 4, 8]
    sync: Sync
    loader: Loader
    points: Annotated[list[tuple[Count, Count, Rate]], Field(min_length=1, max_length=10_000)]
    variable: bool = False
    bucket_mb: Rate = 25.0
    max_steps: Count | None = None
    ps_paths: Count | None = None
    global_batch: Rate | None = None
    note: Word = ""


Keys = TypeVar("Keys", bound=BaseModel)


def read_keys(where: str, kind: type[Keys], written: Mapping[str, Any]) -> Keys:
    """Return the keys of a table, checked. Raise InputError that begins with ``where`` and names the key.

    >>> read_keys("nodes.mine", NodeKeys, {"gpus": 2, "link": "pcie4", "cores": 8, "nic_GBps": 1.25}).gpus
    2
    """
    try:
        return kind.model_validate({key: _as_tuples(value) for key, value in written.items()})
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else "table"
        if first["type"] == "missing":
            raise InputError(f"{where}: {key} is missing") from error
        if first["type"] == "extra_forbidden":
            raise InputError(f"{where}: unknown key {key!r}; there are {', '.join(kind.model_fields)}") from error
        raise InputError(
            f"{where}: {key} = {str(first['input'])[:80]!r}{describe_accepted(first['type'], first['msg'])}"
        ) from error


def _as_tuples(value: Any) -> Any:
    """Return the lists inside a list as tuples, and whole numbers of a point's last column as they are."""
    return [tuple(row) if isinstance(row, list) else row for row in value] if isinstance(value, list) else value
