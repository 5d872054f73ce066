"""Read the facts about a machine in logs, tables, tool outputs and topology files, and describe the machine."""
