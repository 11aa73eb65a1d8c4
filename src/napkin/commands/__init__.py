"""One question each: options in, answer out.

Begin with command.py, what a command declares, and params.py, a short one. inputs.py reads the options of one question;
question/ has what several commands read from them, screens/ what a person sees of their answers.
"""
