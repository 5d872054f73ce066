"""The reference engine, on simpy: slow, plain, to be read."""
