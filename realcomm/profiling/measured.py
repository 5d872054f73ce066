"""Time a model's layers on one device: with the host's clock on a CPU, with CUDA events on a GPU.

Whole phases are timed first, without instrumentation. Then single operations are timed, only to distribute the phases
over the layers.
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from collectives.checks import check_known, check_whole_number
from collectives.errors import InputError, first_line
from collectives.quoting import quote
from collectives.records.environment import cores, describe_environment
from collectives.records.model_profile import Measured, ModelProfile
from collectives.training.recipe import PRECISIONS
from realcomm.execution.device_clock import HostClock, device_clock
from realcomm.launching.torch_process import import_compiler, keep_freed_memory
from realcomm.profiling.meta import WatchedOps
from realcomm.profiling.model_sources import ModelSource, loss_of

WARM_UP = 2
WATCHED = 3  # steps in which each operation is timed
PHASES = ("forward", "backward", "optimizer")


def measure(
    source: ModelSource,
    profile: ModelProfile,
    batch_size: int,
    *,
    device: str = "cpu",
    precision: str = "float32",
    steps: int = 5,
    threads: int | None = None,
) -> Measured:
    """Time training steps on a device; return the times of each layer as medians of ``steps`` steps.

    Loading the batch is not included. ``threads`` is the number of CPU threads, only for device "cpu". Default: torch's
    current number. Raise InputError if the device is unavailable, if the batch exceeds its memory, or if the model
    fails.
    """
    check_whole_number("batch_size", batch_size, at_least=1)
    check_whole_number("steps", steps, at_least=1)
    check_known("precision", precision, PRECISIONS)
    where, before = _find_device(device), torch.get_num_threads()
    keep_freed_memory()
    if threads is not None and where.type != "cpu":
        raise InputError(f"threads is {threads}, but {device} is not a CPU; omit threads, or use device cpu")
    try:
        torch.set_num_threads(before if threads is None else check_whole_number("threads", threads, at_least=1))
        return _measure(source, profile, batch_size, where, precision, steps)
    except torch.OutOfMemoryError as error:
        advice = "use a smaller batch size"
        raise InputError(f"a batch of {batch_size} does not fit into the memory of {device}; {advice}") from error
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"model {quote(source.name)} fails: {type(error).__name__}: {first_line(error)}") from error
    finally:
        torch.set_num_threads(before)


def _measure(
    source: ModelSource, profile: ModelProfile, batch_size: int, device: torch.device, precision: str, steps: int
) -> Measured:
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else ()):  # the default would initialize CUDA
        torch.manual_seed(0)
        model = source.build().to(device).train()
        batch = source.batch(batch_size, device)
    import_compiler()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    clock = device_clock(device)
    rows = [_step(model, optimizer, batch, precision, clock) for _ in range(WARM_UP + steps)][WARM_UP:]
    phases = dict(zip(PHASES, (median(column) for column in zip(*rows, strict=True)), strict=True))
    shares = _shares(model, batch, precision, clock, profile)
    forward, backward = (tuple(phases[name] * share for share in shares[name]) for name in ("forward", "backward"))
    name = f"{describe_environment()['cpu']}, {torch.get_num_threads()} of {cores()} cores"
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    return Measured(
        device=name,
        batch_size=batch_size,
        precision=precision,
        forward=forward,
        backward=backward,
        optimizer=phases["optimizer"],
        loading=0.0,
        step=median(sum(row) for row in rows),
        source=f"ringlab profile, median of {steps} steps, torch {torch.__version__}",
        threads=torch.get_num_threads() if device.type == "cpu" else 0,
    )


def _find_device(name: str) -> torch.device:
    if name not in ("cpu", "cuda") and not name.startswith("cuda:"):
        raise InputError(f"unknown device {quote(name)}; use cpu, cuda or cuda:1")
    if name != "cpu" and not torch.cuda.is_available():
        raise InputError(f"device {quote(name)}: torch sees no GPU here; use cpu, or profile on a machine with a GPU")
    number = name.partition(":")[2]
    if number and not (number.isdecimal() and int(number) < torch.cuda.device_count()):
        raise InputError(f"device {quote(name)}: torch sees GPUs cuda:0 to cuda:{torch.cuda.device_count() - 1} here")
    device = torch.device(name)
    if device.index is not None:
        torch.cuda.set_device(device)  # events are recorded on its stream
    return device


def _cast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
    return torch.autocast(device.type, dtypes[precision]) if precision in dtypes else nullcontext()


def _step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Tensor, precision: str, clock: HostClock
) -> list[float]:
    optimizer.zero_grad()
    marks = [clock.now()]
    with _cast(batch.device, precision):
        loss = loss_of(model(batch))
    marks.append(clock.now())
    loss.backward()
    marks.append(clock.now())
    optimizer.step()
    marks.append(clock.now())
    return [after - before for before, after in pairwise(map(clock.seconds, marks))]


def _shares(
    model: nn.Module, batch: Tensor, precision: str, clock: HostClock, profile: ModelProfile
) -> dict[str, list[float]]:
    """Return each layer's fraction of the forward and of the backward time, from the medians of a few steps."""
    steps = [_watch_step(model, batch, precision, clock) for _ in range(WATCHED)]
    seconds = {key: median(step[key] for step in steps) for key in steps[0]}
    return {
        name: _normalized([seconds.get((is_backward, layer.name), 0.0) for layer in profile.layers])
        for name, is_backward in (("forward", False), ("backward", True))
    }


def _watch_step(model: nn.Module, batch: Tensor, precision: str, clock: HostClock) -> dict[tuple[bool, str], float]:
    seen: list[tuple[bool, str, float, float]] = []

    def on_op(layer: str, is_backward: bool, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        begin = clock.now()
        result = op(*args, **kwargs)
        seen.append((is_backward, layer, begin, clock.now()))
        return result

    model.zero_grad()
    watched = WatchedOps(model, on_op)
    with watched:
        with _cast(batch.device, precision):
            loss = loss_of(model(batch))
        watched.is_backward = True
        loss.backward()
    seconds: dict[tuple[bool, str], float] = defaultdict(float)
    for is_backward, layer, begin, end in seen:
        seconds[is_backward, layer] += clock.seconds(end) - clock.seconds(begin)
    return seconds


def _normalized(values: Sequence[float]) -> list[float]:
    total = sum(values)
    return [value / total for value in values] if total > 0 else [1 / len(values)] * len(values)
