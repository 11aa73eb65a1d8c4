"""How long answers are where only their limit is known: the range of published practice.

Mean over limit, as published: 0.25 to 0.27 (Llama 3.1 8B), 0.46 to 0.65 (DeepSeek-V3), 0.70 (Qwen3-235B-A22B), 0.78
(Qwen3-30B-A3B), 0.79 (Qwen3-32B) of 1,536 to 8,192 tokens (NVIDIA NeMo RL, docs/about/performance-summary.md, v0.5 and
v0.6); 0.37 to 0.41 (Qwen3.5-35B-A3B) of 32,768 (verl docs/advance/v1_async_trainer.md); 0.31 to 0.34 (Llama 3 70B) of
1,024 (NeMo-Aligner docs/user-guide/rlhf.rst). Models that do not reason at length stay far below a limit that is
generous.
"""

from __future__ import annotations

from napkin.record import record


@record
class TokenRange:
    """Mean tokens: the likely figure, the least and the most."""

    likely: int
    least: int
    most: int

    @property
    def all(self) -> tuple[int, int, int]:
        return self.likely, self.least, self.most


def answers_within(limit: int) -> TokenRange:
    """Return the mean tokens of answers of at most `limit`. Assumed: half of a limit that answers fill, 2,000 where it
    is generous; from 500 or a fifth of it to 16,000 or four fifths."""
    return TokenRange(
        *(max(1, int(one)) for one in (min(2000, limit / 2), min(500, limit / 5), min(16_000, limit * 0.8)))
    )


def prompts_within(limit: int) -> TokenRange:
    """Return the mean tokens of prompts of at most `limit`. Assumed: questions of 200 tokens, 50 to 1,000."""
    return TokenRange(*(min(one, limit) for one in (200, 50, 1000)))
