"""Profile a model's compute and memory without running it, and time its layers on one device."""
