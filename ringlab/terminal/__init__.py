"""What all commands share on a terminal: options, progress, tables, endings."""
