"""Constants fitted to published steps.

columns.py predicts all rows at once as arrays; posterior.py fits by maximum a posteriori; one_constant.py has the
posterior of one constant; user_steps.py refits to a user's own steps.
"""
