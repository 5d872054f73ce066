"""When what ranks have posted is done: on a simulated network, by NCCL's model, or as measured here."""
