"""How data-parallel training scales: published series, the model of a step, and what it makes of one GPU's rate."""

from simcomm.scaling.descriptions import Job, ScalingGpu, ScalingNode
from simcomm.scaling.models import find_model
from simcomm.scaling.one_gpu import Rate, one_gpu_rate
from simcomm.scaling.rates import Parts, ScaledRate, predict_rate

__all__ = [
    "Job",
    "Parts",
    "Rate",
    "ScaledRate",
    "ScalingGpu",
    "ScalingNode",
    "find_model",
    "one_gpu_rate",
    "predict_rate",
]  # fmt: skip
