"""The rates of a training step on a chip and a software stack.

priors.py has every constant before any step was seen, constants.py as calibrated; of_step.py says which ones a run
depends on, machines.py and chips.py what they need to know of an accelerator.
"""
