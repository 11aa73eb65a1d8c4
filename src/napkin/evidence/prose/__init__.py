"""What a published row says in words: recognize.py fills the row's fields from it, by steps.py (with kernels.py) and
memory.py."""
