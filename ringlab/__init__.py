"""Predict, run, compare and see how a training job scales: what the command line gives, for notebooks and scripts.

>>> import ringlab
>>> scenario = ringlab.load("star8", "cluster.hosts=4")  # or a file; overrides are those of --set
>>> answer = scenario.predict()  # also .run(), .compare(), .winners() and .animate(...)
>>> answer.collectives[0].world_size, answer.to_dict()["kind"]
(4, 'prediction')

Nothing is imported before it is used, so that ``ringlab --help`` does not wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlab.answers.accuracy import AccuracyAnswer, accuracy
    from ringlab.answers.benchmark import BenchAnswer, BenchOptions, bench
    from ringlab.answers.calibration_source import CalibrationAnswer, calibrate
    from ringlab.answers.comparison import Comparison
    from ringlab.answers.explanation import Explanation
    from ringlab.answers.findings import DoctorAnswer, doctor
    from ringlab.answers.hardware_parts import HardwareCatalogue, HardwarePart, hardware
    from ringlab.answers.names import Names, list_names
    from ringlab.answers.pictures import Picture
    from ringlab.answers.prediction import Prediction
    from ringlab.answers.proofs import CheckAnswer, check
    from ringlab.answers.real_run import RunAnswer
    from ringlab.answers.winner_maps import WinnersAnswer, winners
    from ringlab.scenario import Scenario, animate, compare, explain, load, plot, predict, run

_MODULES = {
    "ringlab.answers.accuracy": ("AccuracyAnswer", "accuracy"),
    "ringlab.answers.benchmark": ("BenchAnswer", "BenchOptions", "bench"),
    "ringlab.answers.calibration_source": ("CalibrationAnswer", "calibrate"),
    "ringlab.answers.comparison": ("Comparison",),
    "ringlab.answers.explanation": ("Explanation",),
    "ringlab.answers.findings": ("DoctorAnswer", "doctor"),
    "ringlab.answers.hardware_parts": ("HardwareCatalogue", "HardwarePart", "hardware"),
    "ringlab.answers.names": ("Names", "list_names"),
    "ringlab.answers.pictures": ("Picture",),
    "ringlab.answers.prediction": ("Prediction",),
    "ringlab.answers.proofs": ("CheckAnswer", "check"),
    "ringlab.answers.real_run": ("RunAnswer",),
    "ringlab.answers.winner_maps": ("WinnersAnswer", "winners"),
    "ringlab.scenario": ("Scenario", "animate", "compare", "explain", "load", "plot", "predict", "run"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AccuracyAnswer",
    "BenchAnswer",
    "BenchOptions",
    "CalibrationAnswer",
    "CheckAnswer",
    "Comparison",
    "DoctorAnswer",
    "Explanation",
    "HardwareCatalogue",
    "HardwarePart",
    "Names",
    "Picture",
    "Prediction",
    "RunAnswer",
    "Scenario",
    "WinnersAnswer",
    "accuracy",
    "animate",
    "bench",
    "calibrate",
    "check",
    "compare",
    "doctor",
    "explain",
    "hardware",
    "list_names",
    "load",
    "plot",
    "predict",
    "run",
    "winners",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """Return also what is only imported when it is used."""
    return sorted({*globals(), *__all__})
