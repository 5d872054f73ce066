"""Predictions of published trainings judged: scores, simpler predictions, refits without a source."""
