"""Predict a training step on N GPUs, its memory and time, and choose device meshes and instance types."""
