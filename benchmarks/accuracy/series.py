"""Read published series of training throughput from ``series_described.toml``, and convert their points to columns.

The head of that file explains the keys. Every file may use the nodes and links of ``planner/data/nodes.toml``.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from collectives.errors import InputError, NotKnown
from collectives.input_files import read_text
from collectives.quoting import describe_accepted, quote, suggest
from collectives.records.model_profile import ModelProfile
from collectives.training.parallelism import Parallelism
from collectives.units import count
from planner.columns import Columns, make_columns
from planner.gpus import SERIES_NAMES, Gpu, find_gpu, find_series_gpu
from planner.hosts import NODES, Host, make_node, published_nodes
from planner.jobs import NEVER, Job, even_model, find_model, is_half
from simcomm.cluster.hardware import find_part, parts

OWN_DATA = Path(__file__).parent / "data"
FILE_NAME = "series_described.toml"
TERA = 1e12
WHOLE = ("fp32", "float32", "tf32", "single", "full", "")  # precisions in 32 bits
SQUAD_SAMPLES, SQUAD_EPOCHS = 88_641, 2  # SQuAD 1.1 in windows, for fine-tuning runs that end before ``max_steps``
STRATEGIES: dict[str, dict[str, Any]] = {  # parallelism keys by the ``sync`` of a series
    "ddp": {}, "after": {"overlap": False}, "ps": {"strategy": "parameter_server"}, "none": {"sync_every": NEVER},
}  # fmt: skip

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Rate = Annotated[float, Field(ge=1e-9, le=1e15, allow_inf_nan=False)]  # keeps results finite
Name = Annotated[str, Field(min_length=1, max_length=200)]
Word = Annotated[str, Field(max_length=2000)]
Digits = Annotated[str, StringConstraints(pattern="^[1-9][0-9]{0,5}$")]
Table = Annotated[tuple[Count, Count, Rate], Field(strict=False)]


class _Keys(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    note: Word = ""


class NodeKeys(_Keys):
    """A machine: GPUs, the link between them as it works, CPU cores, and the one-way rate of all NICs in GB/s."""

    gpus: Count
    link: Name
    cores: Count
    nic_GBps: Rate  # noqa: N815 - as the file has it


class GpuKeys(_Keys):
    """The name of a GPU in the hardware catalog, or its data sheet: TFLOP/s, GB/s of memory, watts, year."""

    catalogue: Name | None = None
    fp32: Rate = 0.0
    memory_GBps: Rate = 0.0  # noqa: N815 - as the file has it
    year: Annotated[int, Field(ge=2000, le=2100)] = 0
    tf32: Rate | None = None
    fp16: Rate | None = None
    watts: Rate | None = None


class SeriesKeys(_Keys):
    """The description of a series that a prediction may use, and its points: GPUs, nodes, samples/s of all GPUs."""

    source: Name
    system: Name
    model: Name
    parameters: Annotated[int, Field(ge=1, le=10**15)] | None = None  # of an unknown model
    flops: Rate | None = None  # of a sample's forward pass
    framework: Word = ""
    precision: Word
    gpu: Name
    node: Name
    batch: Rate
    grad_bytes: Literal[1, 2, 4, 8]
    sync: Literal["ddp", "after", "ps", "none"]
    loader: Literal["synthetic", "dali", "decode", "text"]
    points: Annotated[list[Table], Field(min_length=1, max_length=10_000)]
    variable: bool = False
    bucket_mb: Rate = 25.0
    max_steps: Count | None = None
    ps_paths: Count | None = None
    global_batch: Rate | None = None


class FileKeys(_Keys):
    """The keys of a whole file."""

    nodes: dict[Name, NodeKeys] = {}
    links: dict[Name, Annotated[dict[Digits, Rate], Field(min_length=1)]] = {}
    gpus: dict[Name, GpuKeys] = {}
    series: Annotated[list[SeriesKeys], Field(min_length=1)]


class Point(NamedTuple):
    """A published throughput: GPUs, nodes, samples or tokens per second of all GPUs."""

    gpus: int
    nodes: int
    rate: float


@dataclass(frozen=True)
class Series:
    """A job on rising numbers of GPUs. The first point is known, and the other points are predicted."""

    source: str
    system: str
    model: str
    job: Job
    gpu: Gpu
    node: Host
    points: tuple[Point, ...]
    max_steps: int | None = None
    global_batch: float | None = None  # constant for all numbers of GPUs
    where: str = field(default="", compare=False)

    def job_on(self, gpus: int) -> Job:
        """Return the job on a number of GPUs."""
        return self.job if self.global_batch is None else replace(self.job, batch=self.global_batch / gpus)

    def more_steps(self, gpus: int) -> float:
        """Return the published number of steps divided by the number of steps that ran.

        Both differ if two epochs of SQuAD end before ``max_steps``.
        """
        if self.max_steps is None:
            return 1.0
        steps = SQUAD_EPOCHS * -(-SQUAD_SAMPLES // max(1.0, gpus * self.job.batch))
        return max(1.0, self.max_steps / steps)


def is_known_precision(precision: str) -> bool:
    """Return whether a precision is known to have 16 or 32 bits. An empty one means 32 bits.

    >>> is_known_precision("TF32"), is_known_precision(""), is_known_precision("fp8")
    (True, True, False)
    """
    return is_half(precision) or precision.lower() in WHOLE


def read_series(directory: Path | str = OWN_DATA, leave_out: Callable[[NotKnown], None] | None = None) -> list[Series]:
    """Return the series of ``series_described.toml`` in a directory, in the order of the file.

    ``leave_out`` is called with the error of each series whose model is unknown. Default: the error is raised. Raises
    InputError if the file is invalid; the message names the series, the key and the accepted values.

    >>> len(read_series())
    252
    """
    path = Path(directory) / FILE_NAME
    keys = _read(path)
    nodes, gpus, read = _nodes(path, keys), _gpus(path, keys), list[Series]()
    for number, row in enumerate(keys.series, start=1):
        try:
            read.append(_describe(f"{path}: series {number}", row, nodes, gpus))
        except NotKnown as error:
            if leave_out is None:
                raise
            leave_out(error)
    return read


def _read(path: Path) -> FileKeys:
    try:
        return FileKeys.model_validate(tomllib.loads(read_text(path)))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not a TOML file: {error}") from error
    except ValidationError as error:
        raise InputError(f"{path}: {_describe_error(error)}") from error


def _describe_error(error: ValidationError) -> str:
    """Series are counted from one."""
    first = error.errors()[0]
    place = [str(key + 1) if isinstance(key, int) else str(key) for key in first["loc"]]
    where = ".".join(place).replace("series.", "series ", 1)
    if first["type"] == "missing":
        return f"{where} is missing"
    if first["type"] == "extra_forbidden":
        return f"unknown key {where}"
    return f"{where} = {str(first['input'])[:80]!r}{describe_accepted(first['type'], first['msg'])}"


def _nodes(path: Path, keys: FileKeys) -> dict[str, Host]:
    links, nodes = {**tomllib.loads(NODES.read_text(encoding="utf-8"))["links"], **keys.links}, {**published_nodes()}
    for name, node in keys.nodes.items():
        if node.link not in links:
            raise InputError(
                f"{path}: nodes.{name}: link = {node.link!r} is not described; {suggest(node.link, links)}"
            )
        nodes[name] = make_node(name, node.gpus, node.link, links[node.link], node.cores, node.nic_GBps)
    return nodes


def _gpus(path: Path, keys: FileKeys) -> dict[str, Gpu]:
    gpus = {name: find_series_gpu(name) for name in SERIES_NAMES}
    for name, gpu in keys.gpus.items():
        where = f"{path}: gpus.{name}"
        if gpu.catalogue is not None:
            gpus[name] = _known_gpu(f"{where}: catalogue", name, gpu.catalogue)
            continue
        missing = [key for key in ("fp32", "memory_GBps", "year") if not getattr(gpu, key)]
        if missing:
            raise InputError(f"{where}: {missing[0]} is missing")
        watts = gpu.watts or (gpus[name].watts if name in gpus else None)
        tf32 = gpu.tf32 or gpu.fp32
        half = (gpu.fp16 or tf32) * TERA
        gpus[name] = Gpu(
            name, "other", year=gpu.year, vector_32=gpu.fp32 * TERA, matrix_32=tf32 * TERA, matrix_16=half,
            matrix_8=half, matrix_4=half, memory_rate=gpu.memory_GBps * 1e9, watts=watts, has_tf32=gpu.tf32 is not None,
        )  # fmt: skip
    return gpus


def _known_gpu(where: str, name: str, known_as: str) -> Gpu:
    try:
        find_part("GPU", known_as)  # raises InputError for the names of published runs
        return find_gpu(known_as)._replace(name=name)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _describe(where: str, keys: SeriesKeys, nodes: Mapping[str, Host], gpus: Mapping[str, Gpu]) -> Series:
    if keys.sync == "ps" and keys.ps_paths is None:
        raise InputError(f"{where}: ps_paths is missing; a parameter server needs it (x16 paths to the host)")
    if keys.node not in nodes:
        raise InputError(f"{where}: node = {keys.node!r} is not described; {suggest(keys.node, nodes)}")
    if keys.gpu not in {*gpus, *parts("GPU")}:
        raise InputError(
            f"{where}: gpu = {quote(keys.gpu)} is not described; {suggest(keys.gpu, [*gpus, *parts('GPU')])}"
        )
    points = tuple(Point(*point) for point in keys.points)
    for point in points:
        _check_point(f"{where}: points", point, nodes[keys.node])
    parallelism = Parallelism(bucket_mb=keys.bucket_mb, gradient_bytes=keys.grad_bytes, **STRATEGIES[keys.sync])
    job = Job(
        model=_model(where, keys),
        batch=keys.batch,
        parallelism=parallelism,
        precision=keys.precision,
        loader=keys.loader,
        variable_batches=keys.variable,
        framework=keys.framework,
    )
    gpu = gpus[keys.gpu] if keys.gpu in gpus else _known_gpu(f"{where}: gpu", keys.gpu, keys.gpu)
    return Series(
        source=keys.source, system=keys.system, model=keys.model, job=job, gpu=gpu,
        node=replace(nodes[keys.node], gpu=gpu, paths=keys.ps_paths or 1), points=points, max_steps=keys.max_steps,
        global_batch=keys.global_batch, where=where,
    )  # fmt: skip


def _model(where: str, keys: SeriesKeys) -> ModelProfile:
    try:
        return find_model(keys.model)
    except InputError as error:
        if keys.parameters is None or keys.flops is None:
            raise NotKnown(f"{where}: {error}; or give its parameters and flops") from error
    return even_model(keys.model, keys.parameters, keys.flops)


def _check_point(where: str, point: Point, node: Host) -> None:
    used = f"{where}: {count(point.gpus, 'GPU')} on {count(point.nodes, 'node')}"
    if point.nodes > point.gpus:
        raise InputError(f"{used}; give at least one GPU on each node")
    if point.gpus > point.nodes * node.gpus:
        raise InputError(
            f"{used}; {node.name} has {count(node.gpus, 'GPU')}, so give {point.nodes * node.gpus} at most, or more "
            "nodes"
        )


def columns_of_series(series: Sequence[Series]) -> Columns:
    """Return the points of series as columns, series after series. The column ``alone`` is not set.

    >>> one = read_series()[0]
    >>> columns_of_series([one]).gpus.tolist() == [point.gpus for point in one.points]
    True
    """
    rows = [(curve, point) for curve in series for point in curve.points]
    jobs = [curve.job.columns for curve, _ in rows]
    shared = ("exchange", "bucket_mb", "gradient_bytes", "loader", "variable")
    return make_columns(
        {
            **{name: [columns[name] for columns in jobs] for name in shared},
            "profile": [curve.job.model for curve, _ in rows],
            "host": [curve.node for curve, _ in rows],
            "gpus_used": [-(-point.gpus // point.nodes) for _, point in rows],
            "dp": [point.gpus for _, point in rows],
            "micro_batch": [curve.job_on(point.gpus).batch for curve, point in rows],
            "precision": "float32",
        },
        len(rows),
    )
