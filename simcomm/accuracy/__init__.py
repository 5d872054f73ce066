"""How well times are predicted: predictions beside what was measured, judged by one rule; simpler predictions."""
