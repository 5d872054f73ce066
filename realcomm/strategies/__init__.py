"""Train with every parallelism strategy, using torch's own classes on a device mesh."""
