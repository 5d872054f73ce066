"""What NCCL would do on a described system: its description, NCCL's choices, and the time that they take."""
