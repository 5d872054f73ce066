"""The reference engine, based on simpy: slow, and easy to read."""
