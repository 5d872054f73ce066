"""Read facts about a machine from logs, tables, tool outputs and topology files, and describe the machine."""
