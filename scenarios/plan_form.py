"""What a scenario says of a training that is to be planned on rented machines: ``[training]`` and ``[plan]``.

Tables and keys that only predictions and runs need are passed over, so any scenario with a training can be planned,
also one of ``--devices``: what an epoch has says how many samples there are to train on.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from collectives.errors import InputError
from collectives.parallelism import Parallelism
from collectives.quoting import cut
from scenarios import toml_files
from scenarios.devices_form import DevicesScenarioForm, DevicesTrainingForm, ParallelismKeys
from scenarios.fields import Ratio, Section, Title, check_known
from scenarios.forms import ScenarioForm, TrainingForm
from scenarios.messages import read_form

PRECISIONS = ("float32", "tf32", "fp16", "bf16", "mixed")
LOADERS = ("synthetic", "dali", "decode", "text")
OPTIMIZERS = ("sgd", "adamw")
PLANNED = {"form": "ddp", "tensor": 1, "pipeline": 1, "expert": 1}  # of training.parallelism
UNITS = {
    ("min", "minute", "minutes"): 1 / 60, ("h", "hour", "hours"): 1.0, ("d", "day", "days"): 24.0,
    ("week", "weeks"): 168.0,
}  # fmt: skip
DURATIONS = {name: hours for names, hours in UNITS.items() for name in names}


def parse_hours(value: object) -> float:
    """Return a duration in hours; a number without a unit is of hours. Raise InputError.

    >>> parse_hours("2 days"), parse_hours("90 min"), parse_hours(3)
    (48.0, 1.5, 3.0)
    """
    found = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([a-z]*)\s*", str(value).lower())
    try:
        number = float(found[1]) if found else -1.0
    except ValueError:
        number = -1.0
    factor = DURATIONS.get((found[2] or "h") if found else "")
    if factor is None or not 0 < number < 1e9 or isinstance(value, bool):
        raise InputError(f"{cut(str(value))!r} is no duration; write '12 h', '3 days' or '90 min'")
    return number * factor


Hours = Annotated[float, BeforeValidator(parse_hours)]
Dollars = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=1, le=10**15)]


class PlanTrainingForm(Section):
    """``[training]`` of a plan: what its rate and its memory depend on."""

    model: str = Field(
        min_length=1, description='for example "resnet50", or any name beside parameters = 1_700_000_000'
    )
    image_shape: list[int] = Field([])  # of a sample, where it is not the profile's
    batch_size: int = Field(32, ge=1, le=10**9)  # samples or tokens of each GPU between two exchanges of gradients
    accumulate: int = Field(1, ge=1)
    precision: str = "float32"
    optimizer: str = "sgd"
    parameters: Whole | None = None
    samples_per_epoch: Whole | None = None
    epochs: int = Field(1, ge=1)
    parallelism: ParallelismKeys = Field({})

    @property
    def samples(self) -> float | None:
        """The samples of all epochs, where it is said what one has."""
        return None if self.samples_per_epoch is None else float(self.samples_per_epoch * self.epochs)

    def replicas(self, gpus: int) -> Parallelism:
        """Return the form in which so many GPUs train: each has the whole model."""
        given = {"microbatches": self.accumulate, **self.parallelism, "data": gpus}
        return Parallelism(**given)

    @model_validator(mode="after")
    def _check_values(self) -> "PlanTrainingForm":
        check_known(self.precision, "precision", PRECISIONS)
        check_known(self.optimizer, "optimizer", OPTIMIZERS)
        if self.batch_size % self.accumulate:
            raise InputError(f"accumulate is {self.accumulate}; give a divisor of batch_size, {self.batch_size}")
        given = Parallelism(**self.parallelism)
        for key, planned in PLANNED.items():
            if (value := getattr(given, key)) != planned:
                raise InputError(
                    f"parallelism.{key} = {value!r} is not planned: a plan is of {key} = {planned!r}, where each GPU "
                    "has the whole model and averages gradients; `ringlab predict --devices` predicts this one"
                )
        return self


class PlanForm(Section):
    """``[plan]``: what is to be reached, what may be rented, and what more is known of the training."""

    target_samples: Dollars | None = None  # the command line can say these instead
    budget: Dollars | None = None
    deadline: Hours | None = None
    spot: bool = False
    most_nodes: int = Field(4, ge=1, le=4096)
    providers: list[str] = Field([])
    interruptions_per_day: float = Field(0.0, ge=0, allow_inf_nan=False)  # of a spot node
    lost_per_interruption: Hours = 0.25
    known_rates: dict[str, Dollars] = Field({})  # samples/s of one GPU, by its type: measured
    profiles: list[str] = Field([])  # files of `ringlab profile` whose times say the same, beside the scenario
    loader: str = "synthetic"
    bucket_mb: Ratio = 25.0
    gradient_bytes: int = Field(4, ge=1, le=8)  # of an element, as it travels
    variable_batches: bool = False  # of unequal work

    @model_validator(mode="after")
    def _check_loader(self) -> "PlanForm":
        check_known(self.loader, "loader", LOADERS)
        return self


class PlanScenarioForm(Section):
    """A whole file as a plan reads it."""

    title: Title = ""
    training: PlanTrainingForm = Field(description="a [training] table, what is to be planned")
    plan: PlanForm = Field(default_factory=lambda: PlanForm.model_validate({}))


def read_plan_scenario(reference: str, overrides: Sequence[str] = ()) -> tuple[PlanScenarioForm, Path]:
    """Return what a scenario says of a plan, and its file. Raise InputError that names file, key and value."""
    path = toml_files.find(reference)
    tables = toml_files.tables(path, overrides)
    where = f"{path} with --set {', --set '.join(map(cut, overrides))}" if overrides else str(path)
    return read_form(_without_others(tables), where, PlanScenarioForm), path


def _without_others(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the tables without what only predictions and runs read."""
    kept = _without(tables, PlanScenarioForm, (ScenarioForm, DevicesScenarioForm))
    if isinstance(kept.get("training"), dict):
        kept["training"] = _without(kept["training"], PlanTrainingForm, (TrainingForm, DevicesTrainingForm))
    return kept


def _without(table: dict[str, Any], own: type[Section], others: Iterable[type[Section]]) -> dict[str, Any]:
    """Return a table without the keys that only others of its forms have."""
    foreign = {key for other in others for key in other.model_fields} - own.model_fields.keys()
    return {key: value for key, value in table.items() if key not in foreign}
