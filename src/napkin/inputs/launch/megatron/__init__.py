"""Megatron-core's options, whoever writes them: core.py for the step, model.py the network, stages.py pipelines."""
