"""Build the operations of all ranks as arrays: run rank programs, check them against the rules, match messages."""
