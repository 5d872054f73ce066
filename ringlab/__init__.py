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
    from ringlab.answers.calibration import CalibrationAnswer, calibrate
    from ringlab.answers.explanation import Explanation
    from ringlab.answers.findings import DoctorAnswer, doctor
    from ringlab.answers.hardware_parts import HardwareCatalogue, HardwarePart, hardware
    from ringlab.answers.model_profiling import ProfileAnswer, profile_model
    from ringlab.answers.names import Names, list_names
    from ringlab.answers.planning import PlanAnswer, plan
    from ringlab.answers.proofs import CheckAnswer, check
    from ringlab.answers.winner_maps import WinnersAnswer, winners
    from ringlab.commands.compare import Comparison
    from ringlab.commands.draw import Picture
    from ringlab.commands.measurement import RunAnswer
    from ringlab.commands.model_parallel import ModelParallelAnswer, model_parallel
    from ringlab.commands.predict_devices import DevicesAnswer, predict_devices
    from ringlab.commands.predict_sweep import SweepAnswer, predict_sweep
    from ringlab.commands.prediction import Prediction
    from ringlab.commands.profiled_rank import ProfiledRank, compare_devices
    from ringlab.scenario import Scenario, animate, compare, explain, load, plot, predict, run

_MODULES = {
    "ringlab.answers.accuracy": ("AccuracyAnswer", "accuracy"),
    "ringlab.answers.benchmark": ("BenchAnswer", "BenchOptions", "bench"),
    "ringlab.answers.calibration": ("CalibrationAnswer", "calibrate"),
    "ringlab.commands.compare": ("Comparison",),
    "ringlab.commands.predict_devices": ("DevicesAnswer", "predict_devices"),
    "ringlab.answers.explanation": ("Explanation",),
    "ringlab.answers.findings": ("DoctorAnswer", "doctor"),
    "ringlab.answers.hardware_parts": ("HardwareCatalogue", "HardwarePart", "hardware"),
    "ringlab.commands.model_parallel": ("ModelParallelAnswer", "model_parallel"),
    "ringlab.answers.model_profiling": ("ProfileAnswer", "profile_model"),
    "ringlab.answers.names": ("Names", "list_names"),
    "ringlab.commands.draw": ("Picture",),
    "ringlab.answers.planning": ("PlanAnswer", "plan"),
    "ringlab.commands.prediction": ("Prediction",),
    "ringlab.commands.profiled_rank": ("ProfiledRank", "compare_devices"),
    "ringlab.answers.proofs": ("CheckAnswer", "check"),
    "ringlab.commands.measurement": ("RunAnswer",),
    "ringlab.commands.predict_sweep": ("SweepAnswer", "predict_sweep"),
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
    "DevicesAnswer",
    "DoctorAnswer",
    "Explanation",
    "HardwareCatalogue",
    "HardwarePart",
    "ModelParallelAnswer",
    "Names",
    "Picture",
    "PlanAnswer",
    "Prediction",
    "ProfileAnswer",
    "ProfiledRank",
    "RunAnswer",
    "Scenario",
    "SweepAnswer",
    "WinnersAnswer",
    "accuracy",
    "animate",
    "bench",
    "calibrate",
    "check",
    "compare",
    "compare_devices",
    "doctor",
    "explain",
    "hardware",
    "list_names",
    "load",
    "model_parallel",
    "plan",
    "plot",
    "predict",
    "predict_devices",
    "predict_sweep",
    "profile_model",
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
