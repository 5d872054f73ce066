"""Plan when a rank posts its sends and receives, and when it waits for them. Executor and simulators use the plan."""
