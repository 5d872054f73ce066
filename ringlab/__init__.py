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
    from ringlab.commands.accuracy.nccl import AccuracyAnswer, accuracy
    from ringlab.commands.catalogue import HardwareCatalogue, HardwarePart, Names, hardware, list_names
    from ringlab.commands.check import CheckAnswer, check
    from ringlab.commands.describe import Description, describe
    from ringlab.commands.diagnose import DiagnosisAnswer, diagnose
    from ringlab.commands.doctor import DoctorAnswer, doctor
    from ringlab.commands.draw import Picture
    from ringlab.commands.init import Beginnings, init
    from ringlab.commands.measuring.bench import BenchAnswer, BenchOptions, bench
    from ringlab.commands.measuring.calibrate import CalibrationAnswer, calibrate
    from ringlab.commands.measuring.compare import Comparison
    from ringlab.commands.measuring.forms import FormAnswer, compare_form, run_form
    from ringlab.commands.measuring.measurement import RunAnswer
    from ringlab.commands.measuring.profile import ProfileAnswer, profile_model
    from ringlab.commands.measuring.profiled_rank import ProfiledRank, compare_devices
    from ringlab.commands.predicting.devices_answer import DevicesAnswer
    from ringlab.commands.predicting.explain import Explanation
    from ringlab.commands.predicting.plan import PlanAnswer, plan
    from ringlab.commands.predicting.predict_devices import predict_devices
    from ringlab.commands.predicting.predict_sweep import SweepAnswer, predict_sweep
    from ringlab.commands.predicting.prediction import Prediction
    from ringlab.commands.predicting.winners import WinnersAnswer, winners
    from ringlab.scenario import Scenario, animate, compare, explain, load, plot, predict, run

_MODULES = {
    "ringlab.commands.accuracy.nccl": ("AccuracyAnswer", "accuracy"),
    "ringlab.commands.measuring.bench": ("BenchAnswer", "BenchOptions", "bench"),
    "ringlab.commands.measuring.calibrate": ("CalibrationAnswer", "calibrate"),
    "ringlab.commands.measuring.compare": ("Comparison",),
    "ringlab.commands.measuring.forms": ("FormAnswer", "compare_form", "run_form"),
    "ringlab.commands.predicting.devices_answer": ("DevicesAnswer",),
    "ringlab.commands.predicting.predict_devices": ("predict_devices",),
    "ringlab.commands.predicting.explain": ("Explanation",),
    "ringlab.commands.describe": ("Description", "describe"),
    "ringlab.commands.diagnose": ("DiagnosisAnswer", "diagnose"),
    "ringlab.commands.doctor": ("DoctorAnswer", "doctor"),
    "ringlab.commands.catalogue": ("HardwareCatalogue", "HardwarePart", "Names", "hardware", "list_names"),
    "ringlab.commands.measuring.profile": ("ProfileAnswer", "profile_model"),
    "ringlab.commands.draw": ("Picture",),
    "ringlab.commands.init": ("Beginnings", "init"),
    "ringlab.commands.predicting.plan": ("PlanAnswer", "plan"),
    "ringlab.commands.predicting.prediction": ("Prediction",),
    "ringlab.commands.measuring.profiled_rank": ("ProfiledRank", "compare_devices"),
    "ringlab.commands.check": ("CheckAnswer", "check"),
    "ringlab.commands.measuring.measurement": ("RunAnswer",),
    "ringlab.commands.predicting.predict_sweep": ("SweepAnswer", "predict_sweep"),
    "ringlab.commands.predicting.winners": ("WinnersAnswer", "winners"),
    "ringlab.scenario": ("Scenario", "animate", "compare", "explain", "load", "plot", "predict", "run"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

if TYPE_CHECKING:
    __version__: str

__all__ = [
    "AccuracyAnswer",
    "Beginnings",
    "BenchAnswer",
    "BenchOptions",
    "CalibrationAnswer",
    "CheckAnswer",
    "Comparison",
    "Description",
    "DevicesAnswer",
    "DiagnosisAnswer",
    "DoctorAnswer",
    "Explanation",
    "FormAnswer",
    "HardwareCatalogue",
    "HardwarePart",
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
    "compare_form",
    "describe",
    "diagnose",
    "doctor",
    "explain",
    "hardware",
    "init",
    "list_names",
    "load",
    "plan",
    "plot",
    "predict",
    "predict_devices",
    "predict_sweep",
    "profile_model",
    "run",
    "run_form",
    "winners",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("ringlab")
    if name == "virtual":
        return import_module("ringlab.virtual")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """Return also what is only imported when it is used."""
    return sorted({*globals(), *__all__})
