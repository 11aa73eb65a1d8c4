"""Searches over the formulas of memory and time: the best layout, what fits, what would make it fit.

Begin with verdicts.py, whether a step fits; search.py, every layout of a machine at once, over grid.py; remedies.py,
what would make a step fit. serving_search.py and rollouts.py are of inference engines, laws/ of scaling laws.
"""
