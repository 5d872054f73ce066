"""``CalibrationAnswer``: what ``calibrate`` measured."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from collectives.calibration.calibration import Calibration
from collectives.request import Request
from collectives.training.workload import Training
from ringlab.session import Session
from ringlab.shared.answer import Record
from ringlab.shared.options import TIMEOUT_S
from ringlab.shared.progress import NoProgress, Progress


@dataclass(frozen=True)
class CalibrationAnswer(Record):
    """What ``calibrate`` measured, and the file in which predictions find it for a day; "" where none could be."""

    calibration: Calibration
    file: str

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "calibration", "file": self.file, **asdict(self.calibration)}


def calibrate(
    ranks: int = 2,
    trainings: Sequence[Training] = (),
    *,
    requests: Sequence[Request] = (),
    backend: str = "gloo",
    timeout: float = TIMEOUT_S,
    progress: Progress | None = None,
    accept_noise: bool = False,
) -> CalibrationAnswer:
    """Measure this machine with so many ranks, for these requests and trainings, and keep the result in the cache.

    ``backend`` is "gloo" or "nccl"; the launch may take ``timeout`` seconds. Raises InputError for what cannot be
    measured, and RunFailed, also where the machine was busy or the parts disagree, unless ``accept_noise``.

    >>> calibrate(1, accept_noise=True).calibration.ranks  # doctest: +SKIP
    1
    """
    session = Session(backend=backend, timeout_s=timeout, progress=progress or NoProgress())
    return CalibrationAnswer(*session.calibrate(ranks, trainings, requests, accept_noise))
