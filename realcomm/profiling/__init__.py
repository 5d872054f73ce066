"""Profile a model's compute and memory from its shapes, and time its layers on one device."""
