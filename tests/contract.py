"""A small model and what a refusal looks like, for the tests of what scripts may rely on.

The pinned counts are worked out by hand for SMALL: h = 256, 4 layers, 8 heads of 32 (4 of them for keys and values),
feed-forward 688, 1,000 rows of vocabulary, untied. A layer has 2·256² + 2·256·128 + 3·256·688 + 2·256 = 725,504
weights; with the table, the head and the last norm 4·725,504 + 2·256,000 + 256 = 3,414,272.
"""

from __future__ import annotations

from typing import Any

from tests.conftest import Outcome

SMALL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 688,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
COUNT = 3_414_272
RUN = "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100"


def changed(**fields: Any) -> dict[str, Any]:
    """SMALL with other fields; None takes one out."""
    return {k: v for k, v in {**SMALL, **fields}.items() if v is not None}


def refused(outcome: Outcome, status: int, *says: str) -> None:
    """One or more error lines, a hint, nothing on stdout, the status."""
    assert outcome.status == status, outcome.err
    assert outcome.out == ""
    assert outcome.errors
    assert outcome.hints
    for word in says:
        assert word in outcome.err
    assert "Traceback" not in outcome.err
