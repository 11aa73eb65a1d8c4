"""What software does, as facts about its code: stacks.py for a step's time, scripts.py where a row does not say."""
