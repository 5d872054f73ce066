"""Define the tables of a scenario file as pydantic models, with the checks that need no built cluster or algorithm."""

import re
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from collectives.checks import check_known
from collectives.declaration import NCCL
from collectives.errors import InputError
from collectives.quoting import cut, quote
from collectives.spec import ITEM_BYTES, check_op, find_spec, item_bytes
from collectives.units import format_size
from scenarios.cluster_sections import AnyClusterSection
from scenarios.faults import FaultsSection
from scenarios.fields import Algorithms, Section, Size, Title, as_list
from scenarios.nccl_sections import NcclSection
from scenarios.training_section import TrainingSection

UNITS = {
    ("min", "minute", "minutes"): 1 / 60, ("h", "hour", "hours"): 1.0, ("d", "day", "days"): 24.0,
    ("week", "weeks"): 168.0,
}  # fmt: skip
DURATIONS = {name: hours for names, hours in UNITS.items() for name in names}


def parse_hours(value: object) -> float:
    """Return a duration such as ``"3 days"`` in hours. A number without a unit is in hours.

    Raise InputError if the value is not a positive duration.

    >>> parse_hours("2 days"), parse_hours("90 min"), parse_hours(3)
    (48.0, 1.5, 3.0)
    """
    number_text = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[0-9]+)?"
    match = re.fullmatch(rf"\s*({number_text})\s*([a-z]*)\s*", str(value).lower())
    number = float(match[1]) if match else -1.0
    factor = DURATIONS.get((match[2] or "h") if match else "")
    if factor is None or not 0 < number < 1e9 or isinstance(value, bool):
        raise InputError(f"invalid duration {cut(str(value))!r}; write for example '12 h', '3 days' or '90 min'")
    return number * factor


Hours = Annotated[float, BeforeValidator(parse_hours)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PlanSection(Section):
    """``[plan]``: the goals and limits of a plan, and known training rates of single GPUs."""

    target_samples: Positive | None = None  # the first five keys are also command-line options
    target_tokens: Positive | None = None  # replaces target_samples for transformers
    budget: Positive | None = None
    deadline: Hours | None = None
    spot: bool = False
    most_nodes: int = Field(4, ge=1, le=4096)
    providers: list[str] = Field([])
    known_rates: dict[str, Positive] = Field({})  # measured samples/s of one GPU, by its type
    profiles: list[str] = Field([])  # files of `ringlab profile`, relative to the scenario, used as known rates

    def find_samples(self, context: int | None) -> float | None:
        """Return the number of samples to train on, or None if the plan has no target.

        ``context`` is the number of tokens per sample, or None if the model is not a transformer. In this case, raise
        InputError if the target is in tokens.

        >>> PlanSection(target_tokens=1e6).find_samples(1000)
        1000.0
        """
        if self.target_tokens is None:
            return self.target_samples
        if context is None:
            raise InputError("target_tokens only applies to transformers; set target_samples")
        return self.target_tokens / context

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        if self.target_samples is not None and self.target_tokens is not None:
            raise InputError("target_samples and target_tokens are mutually exclusive; remove one of them")
        return self


NEEDS_NCCL = 'requires a cluster with transport = "nccl"; remove it, or set the transport'


class CollectiveSection(Section):
    """``[collective]``: one collective, the algorithms to compare for it, and the buffer sizes."""

    name: Annotated[str, AfterValidator(lambda name: find_spec(name).name)] = Field(
        description='for example "all_reduce"'
    )
    dtype: Annotated[str, AfterValidator(lambda dtype: check_known("dtype", dtype, ITEM_BYTES))] = "float32"
    op: str = "sum"
    root: int = Field(0, ge=0)
    algorithms: Algorithms = Field(min_length=1, description='for example ["naive", "ring"]')
    sizes: Annotated[list[Size], BeforeValidator(as_list)] = Field(
        min_length=1, description='for example ["64 KiB", "1 MiB"]'
    )

    @field_validator("op")
    @classmethod
    def _check_op(cls, op: str, info: ValidationInfo) -> str:
        check_op(op, info.data.get("dtype", "float32"))
        if "name" in info.data and op != "sum" and not find_spec(info.data["name"]).reduces:
            raise InputError(f"{info.data['name']} does not reduce; remove op = {quote(op)}")
        return op

    @field_validator("root")
    @classmethod
    def _check_root(cls, root: int, info: ValidationInfo) -> int:
        if "name" in info.data and root != 0 and not find_spec(info.data["name"]).rooted:
            raise InputError(f"{info.data['name']} does not have a root; remove root = {root}")
        return root

    @field_validator("sizes")
    @classmethod
    def _check_sizes(cls, sizes: list[int], info: ValidationInfo) -> list[int]:
        dtype = info.data.get("dtype", "uint8")
        for nbytes in sizes:
            if nbytes < item_bytes(dtype):
                raise InputError(f"{format_size(nbytes)} is smaller than one {dtype} element ({item_bytes(dtype)} B)")
        return sizes


class WhatIfSection(Section):
    """``[[what_if]]``: a variant of the scenario with another cluster, other faults or other NCCL settings."""

    title: Title = Field(min_length=1, description='for example "eight hosts on 10 Gbit/s"')
    cluster: AnyClusterSection | None = Field(None, description="a table like [cluster]; default: the scenario's")
    faults: FaultsSection | None = Field(None, description="a table like [faults]")
    nccl: NcclSection | None = Field(None, description="a table like [nccl]; default: the scenario's")

    @model_validator(mode="after")
    def _check_difference(self) -> Self:
        if self.cluster is None and self.faults is None and self.nccl is None:
            raise InputError(
                "this what-if is identical to the scenario; add a [what_if.cluster], [what_if.faults] or "
                "[what_if.nccl] table"
            )
        return self


class ScenarioSection(Section):
    """All tables of a scenario file."""

    title: Title = Field("", min_length=1)
    cluster: AnyClusterSection = Field(description='for example [cluster] with preset = "this-machine"')
    collective: CollectiveSection | None = None
    training: TrainingSection | None = None
    faults: FaultsSection | None = None
    nccl: NcclSection | None = None
    what_if: list[WhatIfSection] = Field([])
    plan: PlanSection = Field(default_factory=lambda: PlanSection.model_validate({}))

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        if self.collective is None and self.training is None:
            raise InputError("nothing to run; add a [collective] or [training] table")
        return self

    @model_validator(mode="after")
    def _check_nccl(self) -> Self:
        over_nccl = [(other.cluster or self.cluster).transport == NCCL for other in self.what_if]
        if self.nccl is not None and self.cluster.transport != NCCL and True not in over_nccl:
            raise InputError(f"[nccl] {NEEDS_NCCL}")
        for number, (other, fits) in enumerate(zip(self.what_if, over_nccl, strict=True)):
            if other.nccl is not None and not fits:
                raise InputError(f"what_if.{number}.nccl {NEEDS_NCCL}")
        return self

    @model_validator(mode="after")
    def _check_faults(self) -> Self:
        if not self.faults and not any(other.faults for other in self.what_if):
            return self
        syncs = [sync.name for sync in (self.training and self.training.gradient_sync) or ()]
        names = [*syncs, *(algorithm.name for algorithm in (self.collective.algorithms if self.collective else ()))]
        for name, is_named in ((NCCL, NCCL in names), ("ddp", "ddp" in syncs)):
            if is_named:
                raise InputError(
                    f'faults: "{name}" does not support faults, because it is predicted by formula, without '
                    "simulated messages"
                )
        return self


class PlanScenarioSection(ScenarioSection):
    """All tables of a scenario file for ``ringlab plan``, which does not require ``[cluster]``."""

    cluster: AnyClusterSection | None = None  # type: ignore[assignment]

    @model_validator(mode="after")
    def _check_nccl(self) -> Self:
        return self  # [nccl] applies to the scenario's cluster, not to candidates
