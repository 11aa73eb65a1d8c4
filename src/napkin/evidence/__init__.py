"""Published measurements: read, compared with predictions, and turned into constants and intervals.

Three kinds of module. Predictions for every command: one_run.py, the time of one step with its interval; rates.py,
constants.py and margins.py, what was learned; runs.py and run_estimate.py, whole runs. Readers of published
rows: published.py, then a module for each schema (step_rows.py, setups.py and footprint.py for memory, run_rows.py,
finetune_rows.py, serving_rows.py) and recognize.py, which reads prose. Fitting and judging, by tools and `validate`:
fit.py, columns.py, validate.py, accuracy.py.
"""
