"""Read Python files, without running them: program.py one that calls a trainer, assignments.py one of settings."""
