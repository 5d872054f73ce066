"""The compiled engine: the reference engine's answer at scale."""
