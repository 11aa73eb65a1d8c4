"""Rules about training configurations: what wastes time, memory or money, and what is contradictory.

Begin with rule.py, what a rule states, and registry.py, all rules by their groups; case.py is the configuration that
they look at, and judge.py chooses the best change of a finding.
"""
