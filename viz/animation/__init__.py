"""The animation of a Trace: messages moving over the topology."""
