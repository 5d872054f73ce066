"""How well NCCL's times are predicted: scores against published tables, baselines, intervals, calibration."""
