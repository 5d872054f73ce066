"""Published trainings on many GPUs, what they tell of one GPU's rate, and how a job scales from it."""

from planner.mesh.job import TrainingJob
from planner.scaling.gpu_rates import predict_rate
from planner.scaling.models import find_model
from planner.scaling.one_gpu import OneGpuRate, one_gpu_rate

__all__ = ["OneGpuRate", "TrainingJob", "find_model", "one_gpu_rate", "predict_rate"]
