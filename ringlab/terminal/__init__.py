"""What is shown on a terminal: tables, progress, and the options that commands share."""
