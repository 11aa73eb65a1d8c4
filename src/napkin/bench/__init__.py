"""Measure this machine. The only package that uses torch.

Begin with run.py, from a request to a profile, and timing.py, how a kernel is timed; device.py is the interface that
torch_device.py and the tests' fake device implement.
"""
