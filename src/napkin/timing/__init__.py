"""The time of a training step, of generation, and of a run.

Begin with step.py, which adds up a step from layer.py, pipeline.py, data_parallel.py, ends.py and optimizer.py.
clock.py times single kernels and transfers, efficiency.py says what share of the peak a matmul reaches, and rates.py
holds every calibrated constant, which evidence/ fills. time.py and goodput.py are of runs.
"""
