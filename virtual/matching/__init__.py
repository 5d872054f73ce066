"""Match the ranks' operations: collectives by their order in a group, messages by source, destination and tag."""
