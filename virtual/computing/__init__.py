"""How long what a rank computes takes: nothing, as measured, or by a model of flops and bytes."""
