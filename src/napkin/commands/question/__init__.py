"""What several commands read from the options: model, machine, layout, setup, task, software, amount of training."""
