"""The order in which a rank posts and awaits its messages: the executor follows it, and simulators repeat it."""
