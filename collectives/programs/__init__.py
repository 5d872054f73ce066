"""Run users' Python files in separate worker processes, and record the operations of their rank programs."""
