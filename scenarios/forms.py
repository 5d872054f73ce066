"""What a scenario file may say: its keys, their kinds and their bounds, as pydantic models.

Everything that can be judged without building the cluster or looking up an algorithm is judged here.
"""

from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationInfo,
    field_validator,
    model_validator,
)

from collectives.elements import check_op, item_bytes
from collectives.errors import InputError
from collectives.spec import find_spec
from collectives.suggestions import suggest
from collectives.units import format_size, parse_bandwidth, parse_latency, parse_size
from collectives.workload import DATASETS, MODEL_PARAMETERS
from scenarios.fields import Seconds, Section
from scenarios.topologies import HERE, MOST_RANKS, TOPOLOGIES, check_arguments, is_file
from scenarios.trouble import TroubleForm
from simcomm.cluster.files import SUFFIXES
from simcomm.cluster.presets import machine_entries

FILES = f", or a file that ends in {' or '.join(SUFFIXES)}"
MOST_BYTES = 2**40  # a TiB: beyond any buffer, and small enough for every product of bytes and chunks


class Reference(NamedTuple):
    """An algorithm as a scenario names it."""

    name: str
    parameters: dict[str, int | str]


def _reference(value: object) -> Reference:
    name, parameters = value, {}
    if isinstance(value, dict):
        parameters = {key: number for key, number in value.items() if key != "name"}
        name = value.get("name")
    if not isinstance(name, str) or not name:
        raise InputError('an algorithm is "ring", {name = "ring", parameter = 4} or "my.py:name"')
    for key, given in parameters.items():
        if type(given) not in (int, str):
            raise InputError(f"parameter {key} = {given!r} of {name} is neither a whole number nor a text in quotes")
    return Reference(name, parameters)


def _routing(value: object) -> Reference:
    name = value.get("name") if isinstance(value, dict) else value
    if not isinstance(name, str) or not name:
        raise InputError('a routing is "shortest", "ecmp", {name = "ecmp", seed = 1} or "rail-aware"')
    return _reference(value)


def _one_or_more(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _bandwidth(value: object) -> object:
    parse_bandwidth(value)
    return value


def _latency(value: object) -> object:
    parse_latency(value)
    return value


Bandwidth = Annotated[str, BeforeValidator(_bandwidth), Field(description='for example "10 Gbit/s"')]
Latency = Annotated[str, BeforeValidator(_latency), Field(description='for example "5 us"')]
Size = Annotated[int, BeforeValidator(parse_size), Field(ge=0, le=MOST_BYTES)]
Algorithms = Annotated[list[Annotated[Reference, PlainValidator(_reference)]], BeforeValidator(_one_or_more)]


class Link(Section):
    between: list[str] = Field(min_length=2, max_length=2, description='two nodes, for example ["h0", "s0"]')
    bandwidth: Bandwidth
    latency: Latency


class Route(Section):
    path: list[str] = Field(min_length=2, description='all nodes on the way, for example ["h0", "s0", "h1"]')


class ClusterForm(Section):
    """Exactly one of a preset, a topology with its arguments, and links written out."""

    preset: str | None = None
    topology: str | None = None
    hosts: int | None = Field(None, ge=1, le=MOST_RANKS)
    nodes: int | None = Field(None, ge=1, le=MOST_RANKS)
    gpus_per_node: int | None = Field(None, ge=1, le=MOST_RANKS)
    dimensions: list[Annotated[int, Field(ge=1, le=MOST_RANKS)]] | None = None
    racks: int | None = Field(None, ge=1, le=MOST_RANKS)
    hosts_per_rack: int | None = Field(None, ge=1, le=MOST_RANKS)
    oversubscription: float | None = Field(None, gt=0, allow_inf_nan=False)
    ports: int | None = Field(None, ge=2, le=MOST_RANKS)
    hosts_per_router: int | None = Field(None, ge=1, le=MOST_RANKS)
    routers_per_group: int | None = Field(None, ge=1, le=MOST_RANKS)
    global_links: int | None = Field(None, ge=0, le=MOST_RANKS)
    groups: int | None = Field(None, ge=1, le=MOST_RANKS)
    nodes_per_leaf: int | None = Field(None, ge=1, le=MOST_RANKS)
    bandwidth: Bandwidth | None = None
    latency: Latency | None = None
    link: list[Link] | None = Field(None, min_length=1)
    world_size: int | None = Field(None, ge=1, le=MOST_RANKS)
    routing: Annotated[Reference, PlainValidator(_routing)] | None = None
    route: list[Route] | None = Field(None, min_length=1)
    placement: str | list[str] | None = None
    sharing: Literal["fair", "fifo"] | None = None
    transport: Literal["ideal", "gloo-tcp"] = "ideal"

    @field_validator("preset")
    @classmethod
    def _check_preset(cls, preset: str) -> str:
        return _one_of(preset, "preset", (HERE, *machine_entries()))

    @field_validator("topology")
    @classmethod
    def _check_topology(cls, topology: str) -> str:
        return topology if is_file(topology) else _one_of(topology, "topology", tuple(TOPOLOGIES), FILES)

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        given = [kind for kind in ("preset", "topology", "link") if getattr(self, kind) is not None]
        if len(given) != 1:
            problem = f"{' and '.join(given)} exclude each other" if given else "nothing says what it is"
            raise InputError(
                f'{problem}; give exactly one of preset = "this-machine", topology = "star" with hosts, bandwidth '
                "and latency, or [[cluster.link]] tables"
            )
        check_arguments(self)
        if self.preset == HERE:
            self._check_here()
        return self

    def _check_here(self) -> None:
        if "transport" in self.model_fields_set and self.transport != "gloo-tcp":
            raise InputError(f'transport = "{self.transport}": this machine is calibrated; leave it out or "gloo-tcp"')
        for key in ("routing", "route", "placement", "sharing"):
            if getattr(self, key) is not None:
                raise InputError(f'{key} does not go with preset = "{HERE}", whose ranks share one memory')


class CollectiveForm(Section):
    name: str = Field(description='for example "all_reduce"')
    dtype: str = "float32"
    op: str = "sum"
    root: int = Field(0, ge=0)
    algorithms: Algorithms = Field(min_length=1, description='for example ["naive", "ring"]')
    sizes: Annotated[list[Size], BeforeValidator(_one_or_more)] = Field(
        min_length=1, description='for example ["64 KiB", "1 MiB"]'
    )

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        return find_spec(name).name

    @field_validator("dtype")
    @classmethod
    def _check_dtype(cls, dtype: str) -> str:
        item_bytes(dtype)
        return dtype

    @field_validator("op")
    @classmethod
    def _check_op(cls, op: str, info: ValidationInfo) -> str:
        check_op(op, info.data.get("dtype", "float32"))
        if "name" in info.data and op != "sum" and not find_spec(info.data["name"]).reduces:
            raise InputError(f"{op!r} has no meaning, as {info.data['name']} reduces nothing; leave the key out")
        return op

    @field_validator("root")
    @classmethod
    def _check_root(cls, root: int, info: ValidationInfo) -> int:
        if "name" in info.data and root != 0 and not find_spec(info.data["name"]).rooted:
            raise InputError(f"{root} has no meaning, as {info.data['name']} has no root; leave the key out")
        return root

    @field_validator("sizes")
    @classmethod
    def _check_sizes(cls, sizes: list[int], info: ValidationInfo) -> list[int]:
        dtype = info.data.get("dtype", "uint8")
        for nbytes in sizes:
            if nbytes < item_bytes(dtype):
                raise InputError(
                    f"{format_size(nbytes)} holds no element of {dtype}, which takes {item_bytes(dtype)} B"
                )
        return sizes


class ComputeForm(Section):
    forward: Seconds
    backward: Seconds
    optimizer: Seconds

    @model_validator(mode="after")
    def _check_total(self) -> Self:
        if self.forward + self.backward + self.optimizer <= 0:
            raise InputError("a step that computes for no time has no scaling efficiency; give a time above zero")
        return self


class TrainingForm(Section):
    """Keys that are left out keep the defaults of ``collectives.workload.Training``."""

    gradient_sync: Algorithms = Field(min_length=1, description='for example ["ring", "ddp"]')
    model: str = ""
    dataset: str = ""
    batch_size: int = Field(1, ge=1)
    epochs: int = Field(1, ge=1)
    seed: int = Field(0, ge=0, lt=2**32)
    learning_rate: float = Field(1.0, gt=0, allow_inf_nan=False)
    scale_learning_rate: bool = False
    data_folder: str = ""
    compute: ComputeForm | None = None

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        return _one_of(model, "model", tuple(MODEL_PARAMETERS))

    @field_validator("dataset")
    @classmethod
    def _check_dataset(cls, dataset: str) -> str:
        return _one_of(dataset, "dataset", DATASETS)


def _one_of(value: str, what: str, known: tuple[str, ...], more: str = "") -> str:
    if value not in known:
        raise InputError(f"{what} {value!r} is not known; {suggest(value, known, more)}")
    return value


class WhatIfForm(Section):
    title: str = Field(min_length=1, description='for example "eight hosts on 10 Gbit/s"')
    cluster: ClusterForm | None = Field(None, description="a table like [cluster]; the scenario's own unless given")
    trouble: TroubleForm | None = Field(None, description="a table like [trouble]")

    @model_validator(mode="after")
    def _check_difference(self) -> Self:
        if self.cluster is None and self.trouble is None:
            raise InputError("nothing differs from the scenario: give a [what_if.cluster], a [what_if.trouble] or both")
        return self


class ScenarioForm(Section):
    """A whole file."""

    title: str = Field("", min_length=1)
    cluster: ClusterForm = Field(description='for example [cluster] with preset = "this-machine"')
    collective: CollectiveForm | None = None
    training: TrainingForm | None = None
    trouble: TroubleForm | None = None
    what_if: list[WhatIfForm] = Field([])

    @model_validator(mode="after")
    def _check_question(self) -> Self:
        if self.collective is None and self.training is None:
            raise InputError("it asks nothing: add a [collective] or a [training] table")
        return self


def form_at(place: tuple[int | str, ...]) -> type[BaseModel]:
    """The form of the table at ``place``, such as ``("cluster", "link", 3)``."""
    form: type[BaseModel] = ScenarioForm
    for part in place:
        if isinstance(part, str):
            form = _form_in(form.model_fields[part].annotation)
    return form


def _form_in(annotation: Any) -> type[BaseModel]:
    """The model inside ``list[Model] | None`` and the like."""
    while not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        annotation = get_args(annotation)[0]
    return annotation
