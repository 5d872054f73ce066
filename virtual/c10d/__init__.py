"""Virtual versions of c10d's process group, work handles, store and per-process state."""
