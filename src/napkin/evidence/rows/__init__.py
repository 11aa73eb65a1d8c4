"""Rows of published figures, read field by field.

row.py gives typed access with messages that name file, line and field; then a module for each subject (models.py,
networks.py, optimizers.py, recomputation.py) and for each schema: steps.py, setups.py for memory, runs.py. facts.py has
the shipped rows. Rows of fine-tuning and of serving have packages of their own.
"""
