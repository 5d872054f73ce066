"""Published series of training throughput, described: ``series_described.toml``, whose head is the schema.

Nodes, links and GPUs of the project's own file are known in every other; a file may say its own.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from collectives.errors import InputError, NotKnown
from collectives.input_files import read_text
from collectives.quoting import quote, suggest
from collectives.records.model_profile import ModelProfile
from collectives.training.parallelism import Parallelism
from collectives.units import count
from planner.gpus import Gpu, find_gpu
from planner.mesh.interconnect import ScalingNode
from planner.mesh.job import WHOLE, TrainingJob, is_half
from planner.scaling.description_keys import GpuKeys, NodeKeys, SameGpuKeys, SeriesKeys, read_keys
from planner.scaling.models import even_model, find_model
from simcomm.cluster.hardware import find_part, machine_entries, parts

OWN_DATA = Path(str(files("planner.scaling"))) / "data"
FILE_NAME = "series_described.toml"
TERA = 1e12
SQUAD_SAMPLES, SQUAD_EPOCHS = 88_641, 2  # of fine-tuning runs that end before their ``max_steps``: SQuAD 1.1, windows
NEVER = 10**12  # steps after which replicas are averaged that exchange nothing
STRATEGIES: dict[str, dict[str, Any]] = {  # by what a series says of its sync
    "ddp": {}, "after": {"overlap": False}, "ps": {"strategy": "parameter_server"}, "none": {"sync_every": NEVER},
}  # fmt: skip


class Point(NamedTuple):
    """A published throughput: GPUs, nodes, samples or tokens per second of all of them."""

    gpus: int
    nodes: int
    rate: float


@dataclass(frozen=True)
class Series:
    """A job on growing numbers of GPUs; the first point is known, the others are predicted."""

    source: str
    system: str
    model: str
    job: TrainingJob
    gpu: Gpu
    node: ScalingNode
    points: tuple[Point, ...]
    max_steps: int | None = None
    ps_paths: int = 1  # x16 paths to the host, over which parameter servers send
    global_batch: float | None = None  # held over all numbers of GPUs
    where: str = field(default="", compare=False)

    def job_on(self, gpus: int) -> TrainingJob:
        """Return the job on so many GPUs."""
        return self.job if self.global_batch is None else replace(self.job, batch=self.global_batch / gpus)

    def more_steps(self, gpus: int) -> float:
        """Return how many times too many steps a rate was divided by, where the epochs of SQuAD end before them."""
        if self.max_steps is None:
            return 1.0
        steps = SQUAD_EPOCHS * -(-SQUAD_SAMPLES // max(1.0, gpus * self.job.batch))
        return max(1.0, self.max_steps / steps)


def is_known_precision(precision: str) -> bool:
    """Return whether a precision is one of 16 or of 32 bits, or not stated; others are taken as 32 bits.

    >>> is_known_precision("TF32"), is_known_precision(""), is_known_precision("fp8")
    (True, True, False)
    """
    return is_half(precision) or precision.lower() in WHOLE


def read_series(directory: Path | str = OWN_DATA, leave_out: Callable[[NotKnown], None] | None = None) -> list[Series]:
    """Return the series that a directory's ``series_described.toml`` describes, in its order.

    One of a model that is not known is told to ``leave_out`` and left out, if that is given. Raise InputError that
    names the file, the line, the key and what would be accepted.

    >>> len(read_series())
    252
    """
    path = Path(directory) / FILE_NAME
    text = read_text(path)
    content = _parse(path, text)
    nodes = {**read_own("nodes"), **_nodes(path, text, content)}
    gpus = {**read_own("gpus"), **_gpus(path, text, content)}
    tables = content.get("series", [])
    if not isinstance(tables, list) or not tables:
        raise InputError(f"{path}: describes no series; write a table [[series]] for each")
    places = _places(path, text, len(tables))
    found = list[Series]()
    for where, table in zip(places, tables, strict=True):
        try:
            found.append(_describe(where, table, nodes, gpus))
        except NotKnown as error:
            if leave_out is None:
                raise
            leave_out(error)
    return found


def find_node(name: str) -> ScalingNode:
    """Return a node of the project's own file. Raise InputError."""
    found: ScalingNode = _find("node", name, read_own("nodes"))
    return found


def find_scaling_gpu(name: str) -> Gpu:
    """Return a GPU as the project's own series call it, or of the hardware catalogue. Raise InputError.

    >>> find_scaling_gpu("L40S").matrix_16, find_scaling_gpu("A100-80").memory_rate
    (362000000000000.0, 2000000000000.0)
    """
    own: dict[str, Gpu] = read_own("gpus")
    return own[name] if name in own else _of_catalogue(name, name)


def _of_catalogue(name: str, known_as: str) -> Gpu:
    """Return a GPU of the hardware catalogue by the name that series give it. Raise InputError."""
    find_part("GPU", known_as)  # by its name there alone
    return find_gpu(known_as)._replace(name=name)


@cache
def read_own(kind: str) -> dict[str, Any]:
    """Return the ``nodes`` or the ``gpus`` of the project's own file, by name."""
    path = OWN_DATA / FILE_NAME
    text = read_text(path)
    content = _parse(path, text)
    return _nodes(path, text, content) if kind == "nodes" else _gpus(path, text, content)


@cache
def _own_links() -> dict[str, Any]:
    path = OWN_DATA / FILE_NAME
    return _tables(path, _parse(path, read_text(path)), "links")


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a TOML file: {error}") from error
    known = {"nodes", "links", "gpus", "series"}
    if unknown := content.keys() - known:
        raise InputError(f"{path}: unknown key {min(unknown)!r}; there are {', '.join(sorted(known))}")
    return content


def _tables(path: Path, content: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
    found = content.get(name, {})
    if not isinstance(found, dict) or not all(isinstance(table, dict) for table in found.values()):
        raise InputError(f"{path}: [{name}] holds tables like [{name}.NAME]")
    return found


def _nodes(path: Path, text: str, content: Mapping[str, Any]) -> dict[str, ScalingNode]:
    stated = _tables(path, content, "links")
    links = {name: _link(_place(path, text, "links", name), table) for name, table in stated.items()}
    found = {}
    for name, table in _tables(path, content, "nodes").items():
        where = _place(path, text, "nodes", name)
        keys = read_keys(where, NodeKeys, table)
        if keys.link not in links:
            links[keys.link] = _link(where, _find(f"{where}: link", keys.link, _own_links()))
        if keys.machine is not None:
            _check_machine(where, keys.machine, keys.gpus)
        found[name] = ScalingNode(name, keys.gpus, keys.link, links[keys.link], keys.cores, keys.nic_GBps, keys.machine)
    return found


def _check_machine(where: str, machine: str, gpus: int) -> None:
    """Raise InputError for a machine that the hardware catalogue does not have, or that has another number of GPUs."""
    if machine not in machine_entries():
        raise InputError(
            f"{where}: machine = {machine!r} is not in the hardware catalogue; {suggest(machine, machine_entries())}"
        )
    has = machine_entries()[machine]["gpus"]
    if has != gpus:
        raise InputError(f"{where}: machine = {machine!r} has {has} GPUs, and gpus = {gpus}; give the machine's")


def _link(where: str, table: Mapping[str, Any]) -> dict[int, float]:
    found = {}
    for gpus, rate in table.items():
        if not (gpus.isascii() and gpus.isdigit()) or not 1 <= int(gpus[:9]) <= 1_000_000:
            raise InputError(f'{where}: {gpus!r} is no GPU count; write "2" = 20.5, the bus bandwidth in GB/s')
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 1e-9 <= rate < 1e9:
            raise InputError(f"{where}: {gpus} = {rate!r}; give the bus bandwidth in GB/s")
        if int(gpus) in found:
            raise InputError(f"{where}: {gpus} stands for {count(int(gpus), 'GPU')}, whose bandwidth is given already")
        found[int(gpus)] = float(rate)
    if not found:
        raise InputError(
            f'{where}: says no bandwidth; write "2" = 20.5, the bus bandwidth in GB/s of two GPUs and more'
        )
    return found


def _gpus(path: Path, text: str, content: Mapping[str, Any]) -> dict[str, Gpu]:
    found = {}
    for name, table in _tables(path, content, "gpus").items():
        where = _place(path, text, "gpus", name)
        if "catalogue" in table:
            found[name] = _known_gpu(f"{where}: catalogue", name, read_keys(where, SameGpuKeys, table).catalogue)
            continue
        keys = read_keys(where, GpuKeys, table)
        watts = _watts(name) if keys.watts is None else keys.watts
        found[name] = _stated_gpu(name, keys, watts)
    return found


def _stated_gpu(name: str, keys: GpuKeys, watts: float | None) -> Gpu:
    matrix_32 = keys.tf32 or keys.fp32
    matrix_16 = keys.fp16 or matrix_32
    return Gpu(
        name=name,
        generation="other",
        year=keys.year,
        vector_32=keys.fp32 * TERA,
        matrix_32=matrix_32 * TERA,
        matrix_16=matrix_16 * TERA,
        matrix_8=matrix_16 * TERA,
        matrix_4=matrix_16 * TERA,
        memory_rate=keys.memory_GBps * 1e9,
        watts=watts,
        has_tf32=keys.tf32 is not None,
    )


def _watts(name: str) -> float | None:
    """Return the watts of a GPU that the project knows by this name too."""
    try:
        return find_scaling_gpu(name).watts
    except InputError:
        return None


def _gpu(where: str, name: str, described: Mapping[str, Gpu]) -> Gpu:
    """Return a GPU of a file, or the catalogue's of this name. Raise InputError with what is near."""
    if name in described:
        return described[name]
    if name not in parts("GPU"):
        raise InputError(f"{where} = {quote(name)} is not described; {suggest(name, [*described, *parts('GPU')])}")
    return _known_gpu(where, name, name)


def _known_gpu(where: str, name: str, known_as: str) -> Gpu:
    try:
        return _of_catalogue(name, known_as)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _place(path: Path, text: str, kind: str, name: str) -> str:
    """Return where a table stands: its line, where the file has it as ``[kind.name]``."""
    head = re.compile(rf"\s*\[\s*{kind}\s*\.\s*([\"']?){re.escape(name)}\1\s*\]")
    line = next((f"line {number}: " for number, line in enumerate(text.splitlines(), 1) if head.match(line)), "")
    return f"{path}: {line}{kind}.{name}"


def _places(path: Path, text: str, count: int) -> Iterator[str]:
    """Yield where each series begins: its line, where the file has one table [[series]] a line."""
    lines = [number for number, line in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*series\s*\]\]", line)]
    for index in range(count):
        yield f"{path}: line {lines[index]}" if len(lines) == count else f"{path}: series {index + 1}"


def _describe(where: str, table: Any, nodes: Mapping[str, ScalingNode], gpus: Mapping[str, Gpu]) -> Series:
    if not isinstance(table, dict):
        raise InputError(f"{where}: a series is a table")
    keys = read_keys(where, SeriesKeys, table)
    if keys.sync == "ps" and keys.ps_paths is None:
        raise InputError(f"{where}: ps_paths is missing; a parameter server needs it (x16 paths to the host)")
    points = tuple(Point(*point) for point in keys.points)
    parallelism = Parallelism(bucket_mb=keys.bucket_mb, gradient_bytes=keys.grad_bytes, **STRATEGIES[keys.sync])
    job = TrainingJob(
        model=_model(where, keys),
        batch=keys.batch,
        parallelism=parallelism,
        precision=keys.precision,
        loader=keys.loader,
        variable_batches=keys.variable,
        framework=keys.framework,
    )
    gpu, node = _gpu(f"{where}: gpu", keys.gpu, gpus), _find(f"{where}: node", keys.node, nodes)
    _check_points(where, points, node)
    return Series(
        source=keys.source,
        system=keys.system,
        model=keys.model,
        job=job,
        gpu=gpu,
        node=node,
        points=points,
        max_steps=keys.max_steps,
        ps_paths=keys.ps_paths or 1,
        global_batch=keys.global_batch,
        where=where,
    )


def _model(where: str, keys: SeriesKeys) -> ModelProfile:
    """Return the model of a series: a known one, else one of the sizes that its keys state. Raise NotKnown."""
    try:
        return find_model(keys.model)
    except InputError as error:
        if keys.parameters is None or keys.flops is None:
            raise NotKnown(f"{where}: {error}; or give its parameters and flops") from error
    return even_model(keys.model, keys.parameters, keys.flops)


def _check_points(where: str, points: tuple[Point, ...], node: ScalingNode) -> None:
    for point in points:
        try:
            check_gpus(point.gpus, point.nodes, node)
        except InputError as error:
            raise InputError(f"{where}: points: {error}") from error


def check_gpus(gpus: int, nodes: int, node: ScalingNode) -> None:
    """Raise InputError for GPUs in all that so many nodes do not have, or of which not every node has one.

    >>> check_gpus(9, 2, find_node("dgx-a100"))
    """
    if not 1 <= nodes <= gpus:
        raise InputError(
            f"{count(gpus, 'GPU')} on {count(nodes, 'node')}; give at least one GPU on each node, and one node"
        )
    if gpus > nodes * node.gpus:
        raise InputError(
            f"{count(gpus, 'GPU')} on {count(nodes, 'node')}; {node.name} has {count(node.gpus, 'GPU')}, so give "
            f"{nodes * node.gpus} at most, or more nodes"
        )


def _find(what: str, name: str, known: Mapping[str, Any]) -> Any:
    if name not in known:
        raise InputError(f"{what} = {name!r} is not described; {suggest(name, known)}")
    return known[name]
