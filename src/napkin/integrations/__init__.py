"""napkin inside a training loop: a meter, and callbacks of training libraries.

Begin with meter.py, which measures a loop's steps; hf.py and lightning.py call it, and forecast.py has what napkin
predicts of them.
"""
