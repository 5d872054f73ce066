"""What logs, tables, tools and topology files say of a machine, as the keys of a description."""
