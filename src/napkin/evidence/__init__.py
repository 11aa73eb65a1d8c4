"""Published measurements: read, compared with predictions, and turned into constants and intervals.

In the order in which one package may import another (tests/test_packages.py):

    figures/      published figures that answers quote: prices, power, goodput, failures
    software/     what software does: stacks of a step's time, scripts of frameworks and libraries
    intervals/    errors on published rows as intervals, by rank
    rows/         a published row's fields read: model, network, layout, optimizer, memory, measured quantity
    prose/        what a row says in words, written into its fields
    rates/        the constants of a step's time: before any step was seen, and as calibrated
    predictions/  what every command asks for: the time of a step and of a whole run, each with its interval
    finetuning/   rows of fine-tuning
    serving/      rows of inference engines, and what engines reach
    fit/          constants fitted to all rows at once
    validation/   predicted against measured

published.py reads a user's file of any of these forms.
"""
