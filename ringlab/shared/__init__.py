"""What commands share: options, progress, output, failures, and what an answer is."""
