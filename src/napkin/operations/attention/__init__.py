"""Attention in the ways in which classes run it: the usual core, and other kinds next to it.

Begin with core.py, softmax(q·kᵀ)·v; kernels.py and eager.py run it on the tape.
"""
