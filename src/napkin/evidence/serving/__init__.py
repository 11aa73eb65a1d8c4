"""Published serving (schema serving/1): rows.py reads a row, generation.py has the rates that engines reach, errors.py
the intervals.
"""
