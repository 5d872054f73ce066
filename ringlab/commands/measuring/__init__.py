"""Commands that run ranks on this machine or measure it."""
