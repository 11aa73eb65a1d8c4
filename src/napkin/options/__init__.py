"""Every option of the command line, declared once, in the module of its group.

Begin with option.py, what an option states, and registry.py, all of them by name. synonyms.py, meanings.py and
launches.py have the names of other programs.
"""
