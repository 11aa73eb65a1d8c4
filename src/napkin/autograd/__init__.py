"""A symbolic tape with the rules of torch's autograd: what is kept for the backward pass, and how long.

Begin with tape.py, the primitives of torch that layers are made of, and tensors.py, what they compute with. live.py
runs a tape backward and counts live bytes; forward_peaks.py counts those of the forward pass.
"""
