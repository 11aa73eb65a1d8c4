"""Questions about reinforcement learning with an inference engine, for `memory`, `step`, `plan` and `train-time`."""
