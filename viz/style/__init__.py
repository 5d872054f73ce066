"""What every picture shares: colours and captions."""
