"""The animation: messages moving over the topology."""
