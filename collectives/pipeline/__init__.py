"""The order in which a rank posts and awaits messages, shared by the executor and the simulators."""
