"""One step of each form of parallelism by torch's own classes on gloo's ranks, with what travels and what is kept."""
