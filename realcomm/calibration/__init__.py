"""Calibrate this machine, either alone or alternating with runs that are compared with predictions."""
