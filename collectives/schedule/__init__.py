"""What all ranks say, as arrays: built by running rank programs, checked against their rules, matched."""
