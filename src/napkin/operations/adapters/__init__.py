"""Adapters on frozen linear layers, experts and embeddings, as peft 0.21 builds and runs them.

Begin with lora.py, which layers have one, and kind.py, the interface of the kinds other than LoRA and DoRA.
"""
