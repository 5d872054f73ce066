"""How data-parallel training scales: published series, the model of a step, and what it makes of one GPU's rate."""

from simcomm.scaling.descriptions import Job, ScalingGpu, ScalingNode
from simcomm.scaling.models import Layer, TrainedModel, find_model
from simcomm.scaling.rates import Parts, ScaledRate, predict_rate

__all__ = [
    "Job",
    "Layer",
    "Parts",
    "ScaledRate",
    "ScalingGpu",
    "ScalingNode",
    "TrainedModel",
    "find_model",
    "predict_rate",
]  # fmt: skip
