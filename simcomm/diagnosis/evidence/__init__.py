"""What rules stand on: facts with their lines, the machine that they describe, measured beside predicted, causes."""
