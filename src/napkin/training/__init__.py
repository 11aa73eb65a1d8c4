"""What memory and time share about a training run, as frozen records.

Begin with setup.py, all that a step runs, and layout.py, how GPUs divide it. Facts about software have one table for
each kind, next to the record of its fields: frameworks.py and framework.py, trainers.py and trainer.py, optimizers.py
and optimizer.py, kernels.py, tasks.py, precision.py.
"""
