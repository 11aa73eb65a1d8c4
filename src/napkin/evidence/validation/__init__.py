"""Predicted against published: compared.py is one comparison; step_check.py, memory_check.py (by the readings of
memory_readings.py) and run_check.py make them; error_statistics.py and accuracy.py summarize them.
"""
