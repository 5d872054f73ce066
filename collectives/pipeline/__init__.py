"""Plan the order in which a rank posts and awaits messages. The executor and the simulators share this plan."""
