"""The operations of all ranks as arrays: built by running rank programs, checked against the rules, and matched."""
