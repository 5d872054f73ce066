"""Code shared by the commands: options, progress, output, errors, and base classes of results."""
