"""How a weight or an output is divided over ranks (its `shard`), and the roles of operations for folds.

A weight's shard:

    column      the output dimension is divided (q, k, v, gate, up), and the bias with it
    row         the input dimension is divided (attention output, down); each rank has the entire bias
    heads       one entry or row per head, divided with the heads
    vocabulary  the rows of an embedding are divided
    expert      the experts are divided over expert-parallel ranks, each expert on one of them
    replicated  each rank has all of it
"""

from __future__ import annotations

COLUMN, ROW, HEADS, VOCABULARY, EXPERT, REPLICATED = "column", "row", "heads", "vocabulary", "expert", "replicated"
AS_READ = "as read"
"""Division of an output that is divided like the tensors that the operation reads."""

MEMORY = "memory"
"""Name under which cross-attention reads the encoder's output."""
SHARED_TENSOR = "shared/"
"""Prefix under which later layers read a tensor that a layer shares; the name of the sharing operation follows."""

ROUTER, EXPERTS = "router", "experts"
"""Parts of a mixture of experts."""
TOKEN, LAYERS, POSITION, SEGMENT = "token", "layers", "position", "segment"
DISTANCE, NGRAM = "distance", "ngram"
"""Roles of embeddings: of tokens, of each layer's own input, of positions, of segments; of relative distances (read
entirely instead of looked up); of hashed n-grams of tokens."""
SINES = "sines"
"""Role of sines and cosines of positions that a variable of the forward function refers to."""
TABLES = (TOKEN, LAYERS)
"""Roles of the embeddings that token ids index."""
QUERY, KEY, VALUE, QKV = "q", "k", "v", "qkv"
"""Roles in self-attention: the operations that compute queries, keys and values, and the fused projection."""
KV_LATENT, ROTATED_QUERY, ROTATED_KEY = "kv_latent", "rotated_query", "rotated_key"
"""Roles in multi-head latent attention: the down-projection of keys and values, and the parts that RoPE rotates."""
ADAPTER, MERGED = "adapter", "merged"
"""Roles of adapters: next to a layer, and merged into the weights of experts in every pass."""
DOWN, SHARED_EXPERT, LM_HEAD = "down", "shared_expert", "lm_head"
"""Roles of an MLP's last linear layer, of the operations of a shared expert, and of the language model's head."""
AUDIO = "audio"
"""Role of what a multimodal model holds of its audio encoder."""
IMAGES, IMAGE_PROJECTOR = "images", "image_projector"
"""Roles of what it holds of a vision tower that is known by its tensors, and of what is between the tower and the
language model."""
SENSES = (AUDIO, IMAGES, IMAGE_PROJECTOR)
"""Roles of what text does not run."""
POOLER, LOSS = "pooler", "loss"
"""Roles of operations on one token of each sequence, and of a loss at the end of a head."""
MIXER_INPUT, MIXER_GATE, SCAN_PARAMETERS, MIXER = "mixer_input", "mixer_gate", "scan_parameters", "mixer"
"""Roles in a recurrent mixer: its input projection, the gate sliced from that, the projection to Δ, B and C, and the
other operations that a fused kernel runs."""
