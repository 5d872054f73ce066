"""Derive a system description from logs, nccl-tests tables, outputs of tools, and topology files."""
