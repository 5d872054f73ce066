"""Forms of parallelism: what a device keeps in memory, and how long a step takes, for meshes of devices."""
