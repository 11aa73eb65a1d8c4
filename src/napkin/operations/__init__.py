"""The operations that networks are made of. Each states everything about itself: weights, matmuls, bytes, tape rule.

Begin with base.py, the interface, then model.py, layers and stacks of operations. linear.py, pointwise.py, norms.py,
embedding.py and views.py are the common operations; attention/ and adapters/ are packages; experts.py and router.py are
mixtures of experts; recurrence.py is state-space layers. implementations.py says how implementations of one network
differ, rewrite.py applies what depends on an operation's neighbors, and trained.py says what of a network is trained.
"""
