"""The memory of a training step, and of serving, on one GPU.

Begin with prepared.py, what all ranks share; memory.py and moments.py, one rank at each phase of a step; buckets.py,
the answer's categories. activations.py runs a model on the tape, local_weights.py divides weights and states over
ranks, and allocator.py goes from live bytes to what a GPU reports. kv_cache.py and served_weights.py are of serving.
"""
