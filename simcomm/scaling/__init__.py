"""Published trainings on many GPUs, what they tell of one GPU's rate, and how a job scales from it."""

from simcomm.mesh.job import Job
from simcomm.scaling.models import find_model
from simcomm.scaling.one_gpu import Rate, one_gpu_rate
from simcomm.scaling.rates import predict_rate

__all__ = ["Job", "Rate", "find_model", "one_gpu_rate", "predict_rate"]
