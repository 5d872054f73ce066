"""Calibrate this machine, either alone or in turn with runs that are compared with predictions."""
