"""Commands that run ranks of this machine, or measure it."""
