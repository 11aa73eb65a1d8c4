"""Follow a shell script, without running it, to the options that it passes to its training program.

options.py is where reading begins; words.py splits a script into statements, flow.py follows its branches and loops,
commands.py its commands, and values.py expands its words, with marks.py saying where each value is from.
"""
