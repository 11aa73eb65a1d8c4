"""Parameters and FLOPs of a model, and its utilization of a machine: folds over operations.

Begin with params.py and flops.py; conventions.py has the ways in which papers count.
"""
