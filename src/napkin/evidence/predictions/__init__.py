"""Predictions for every command: one_run.py for one step, run_estimate.py and runs.py for a whole run."""
