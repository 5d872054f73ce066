"""Describe a machine from logs, tables, outputs of tools, and topology files."""
