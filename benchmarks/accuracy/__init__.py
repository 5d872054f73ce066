"""Compare predictions with published tables and measured runs: scores, tables, pictures and JSON."""
