"""Find the compute time of a model's layers on one device: stated, measured, or estimated from published rates."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import exp, isfinite, log
from statistics import fmean

from collectives.checks import check_number
from collectives.errors import InputError
from collectives.quoting import quote, suggest
from collectives.records.model_profile import ModelProfile
from collectives.training.workload import ComputePhases
from planner.gpus import describe_unpublished, find_series_gpu
from planner.jobs import Job, even_model
from planner.one_gpu import MEASURED_SPREAD, NARROWER, YOURS, Alone, OneGpuRate, guess_rates, network_of, published
from simcomm.cluster.hardware import parts
from simcomm.nccl.catalogue import find_gpu, match_gpu

SOME_FLOPS = 1e9  # per sample, in a model that is then scaled to match known rates
# names in published series by the beginning of catalog names
SERIES_GPUS = {"V100 ": "V100", "P100 ": "P100", "A100 80GB": "A100-80", "A100 ": "A100", "A800 ": "A100-80"}


@dataclass(frozen=True, eq=False)
class Compute:
    """The compute times of a model's layers on one device, with the uncertainty of the device's rate."""

    forward: tuple[float, ...]  # seconds per sample
    backward: tuple[float, ...]
    optimizer: float  # seconds per step on one device
    source: str
    spread: float  # standard deviation of the logarithm of the rate

    @property
    def sample(self) -> float:
        """The seconds per sample, without the optimizer."""
        return sum(self.forward) + sum(self.backward)


def as_measured(profile: ModelProfile) -> Compute:
    """Return the latest measured times of a profile. Raise InputError if it has none."""
    if not profile.measured:
        raise InputError(
            f"the profile of {quote(profile.model)} has no times; make one with "
            "`ringlab profile MODEL --batch-size N -o FILE.json`"
        )
    last = profile.measured[-1]
    forward, backward = (tuple(each / last.batch_size for each in times) for times in (last.forward, last.backward))
    source = f"measured on {last.device}, batches of {last.batch_size} in {last.precision}"
    return Compute(forward, backward, last.optimizer, source, MEASURED_SPREAD)


def measured_rate(profile: ModelProfile, where: str) -> tuple[str, float]:
    """Return the GPU on which a profile was last measured, and the samples/s of a step on it.

    Raise InputError if the profile has no times, or its GPU is unknown. ``where`` names the profile in the message.
    """
    as_measured(profile)
    last = profile.measured[-1]
    gpu = match_gpu(last.device)
    if gpu is None:
        raise InputError(
            f"{where}: the times were measured on {last.device!r}, not on a known GPU; profile the model on a GPU"
        )
    return gpu.name, last.batch_size / last.step


def at_rate(
    profile: ModelProfile, rate: float, source: str = "a known rate", spread: float = MEASURED_SPREAD
) -> Compute:
    """Return the compute times at which a device reaches ``rate`` samples/s, split among the layers by work.

    Raise InputError if ``rate`` is not positive or impossibly high.
    """
    check_number("rate", rate, "samples a second", above=0)
    work = profile.work(is_backward=False), profile.work(is_backward=True)
    total = (sum(work[0]) + sum(work[1])) * rate
    if not isfinite(total):
        raise InputError(f"rate is {rate:g} samples/s, which no device reaches; set a measured rate")
    ahead, back = (tuple(each / total for each in part) for part in work)
    return Compute(ahead, back, 0.0, f"{source}: {rate:.4g} samples/s on one device", spread)


def series_gpu(name: str) -> str:
    """Convert a GPU's catalog name to its name in published series. Other names are returned unchanged."""
    return next((ours for start, ours in SERIES_GPUS.items() if name.startswith(start)), name)


def has_published_series(gpu: str) -> bool:
    """Return whether a rate of this GPU has been published. ``gpu`` is its name in the hardware catalog."""
    return series_gpu(gpu) in {row.gpu.name for row in published()}


class GpuRates:
    """The samples/s of a job on one GPU of each type: known rates, and estimates for the other types."""

    def __init__(
        self, job: Job, known: Mapping[str, float], gpus: Iterable[str], where: str = "plan.known_rates"
    ) -> None:
        """Estimate the rates of ``gpus``, which are names in the hardware catalog. ``known`` has samples/s by GPU.

        Raise InputError if ``known`` has an unknown GPU. ``where`` is the scenario key of the known rates.
        """
        names = sorted({*parts("GPU"), *SERIES_GPUS.values()})
        for name in known:
            if name not in names:
                raise InputError(f"{where}: {quote(name)} is not in the hardware catalog; {suggest(name, names)}")
        self.job = job
        self.known = {series_gpu(name): rate for name, rate in known.items()}
        self.guessed: dict[str, OneGpuRate] = {}
        others = sorted({series_gpu(name) for name in gpus} - self.known.keys())
        if others and (known or job.model.written_bytes):
            own = [Alone(job, find_series_gpu(name), YOURS, rate) for name, rate in self.known.items()]
            if not job.model.written_bytes:  # equal layers, whose FLOPs reproduce the known rates
                name = job.model.model
                job = replace(job, model=even_model(name, 0, SOME_FLOPS, SOME_FLOPS / 1e3))
                guessed = guess_rates(published(), [row._replace(job=job, rate=1.0) for row in own])
                times = exp(fmean(log(rate.rate) - log(row.rate) for rate, row in zip(guessed, own, strict=True)))
                job = replace(job, model=even_model(name, 0, SOME_FLOPS * times, SOME_FLOPS / 1e3 * times))
            yours = [row._replace(job=job) for row in own]
            targets = [Alone(job, find_series_gpu(name), YOURS) for name in others]
            rates = guess_rates([*published(), *yours], targets)
            self.guessed = dict(zip(others, rates, strict=True))
            for name in set(others) & {*parts("GPU")}:
                if find_gpu(name).generation == "cdna":  # no published run used AMD's GPUs
                    self.guessed[name] = OneGpuRate(self.guessed[name].rate, self.guessed[name].spread / NARROWER)

    def rate(self, gpu: str) -> OneGpuRate:
        """Return the rate of a GPU. Raise InputError if neither the model's layers nor any rate is known."""
        name = series_gpu(gpu)
        if name in self.known:
            return OneGpuRate(self.known[name], MEASURED_SPREAD)
        if name not in self.guessed:
            raise InputError(
                f"model {self.job.model.model} has no layers, only a number of parameters, so its rate cannot be "
                "estimated; measure one GPU and set plan.known_rates"
            )
        return self.guessed[name]


def find_compute(
    job: Job,
    gpu: str | None,
    *,
    rate: float | None = None,
    rate_gpu: str | None = None,
    phases: ComputePhases | None = None,
    batch: float = 1,
    is_profiled: bool = False,
) -> Compute:
    """Return the compute times of one device of type ``gpu``, from the first source that applies.

    The first source is ``rate``, in samples/s, if ``rate_gpu`` is not another GPU. The second is stated ``phases`` of
    ``batch`` samples. If ``is_profiled`` is True, the third is the profile's times on this GPU. The last is an estimate
    from published rates and, if known, the rate of another GPU. Without a known rate, the estimate is for ``rate_gpu``
    instead of ``gpu``. ``gpu`` is None for a device that is not in the hardware catalog. Raise InputError if the
    compute time is unknown.
    """
    if rate is not None and (rate_gpu is None or gpu is None or rate_gpu == gpu):
        return at_rate(job.model, rate)
    if phases is not None:
        if phases.forward + phases.backward < 1e-9:
            raise InputError(f"forward + backward must be at least 1 ns, not {phases.forward + phases.backward:g} s")
        ahead, back = (
            tuple(seconds / batch * each / sum(work) for each in work)
            for seconds, work in ((phases.forward, job.model.work(False)), (phases.backward, job.model.work(True)))
        )
        return Compute(ahead, back, phases.optimizer, f"stated for batches of {batch}", MEASURED_SPREAD)
    known = {} if gpu is None or rate is None or rate_gpu is None else {rate_gpu: rate}
    if is_profiled and job.model.measured:
        known |= {} if gpu is None else dict([measured_rate(job.model, "profile")])
        if gpu is None or find_gpu(gpu).name in known:
            return as_measured(job.model)
    named = gpu if known or rate_gpu is None else rate_gpu
    if named is None:
        raise InputError(
            'the compute time of a device is unknown; set compute = {profile = "FILE.json"} with times (ringlab '
            'profile), {rate = 500.0} or {gpu = "RTX 4090"}'
        )
    guess = GpuRates(job, known, [named], "gpu").rate(named)
    if known:
        ((other, known_rate),) = known.items()
        origin = f"{known_rate:.4g} samples/s on one {other}, scaled to {named} by published rates"
    else:
        network = network_of(job.model)
        is_published = network in {network_of(row.job.model) for row in published()}
        origin = f"published rates of {network if is_published else 'other models'} on one GPU"
    if not has_published_series(named):
        origin += f"; {describe_unpublished([named])}"
    return at_rate(job.model, guess.rate, origin, guess.spread)
