"""Train with every parallelism strategy, with torch's own classes on a device mesh."""
