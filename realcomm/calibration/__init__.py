"""Calibrate this machine for predictions. Calibration can alternate with runs that are compared with predictions."""
