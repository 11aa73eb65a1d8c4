"""Prediction intervals from errors on published rows whose entire source was held out.

ranking.py has the quantile rules; steps.py the intervals of a step's time, margins.py those of memory, rollouts.py
those of steps of reinforcement learning.
"""
