"""napkin: the napkin maths of training language models, done exactly."""

__version__ = "0.2.0"
