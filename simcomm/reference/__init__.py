"""The reference engine, on simpy: slow, and simple to read."""
