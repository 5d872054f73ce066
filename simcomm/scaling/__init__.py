"""Published trainings on many GPUs, what they tell of one GPU's rate, and how a job scales from it."""

from simcomm.mesh.job import TrainingJob
from simcomm.scaling.gpu_rates import predict_rate
from simcomm.scaling.models import find_model
from simcomm.scaling.one_gpu import OneGpuRate, one_gpu_rate

__all__ = ["OneGpuRate", "TrainingJob", "find_model", "one_gpu_rate", "predict_rate"]
