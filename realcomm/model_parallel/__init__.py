"""A model cut into stages, each a process: naive model parallelism, and data parallelism over such rows of stages."""
