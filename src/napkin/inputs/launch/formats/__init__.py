"""The formats of launch files, one module each with its `FORMAT`; inputs/launch/read.py lists them."""
