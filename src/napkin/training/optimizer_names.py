"""Optimizers by their names in papers and frameworks."""

from __future__ import annotations

from napkin.errors import NapkinError, Refused, did_you_mean
from napkin.options.optimizer_spellings import SPELLINGS, UNMODELED
from napkin.training.optimizer import FORMS, Optimizer
from napkin.training.optimizers import MOST_RANK, OPTIMIZERS, PROJECTED, RANK
from napkin.units import plain

_PROJECTING = {
    "galore": "galore-adamw",
    "galoreadamw": "galore-adamw",
    "q-galore": "q-galore-adamw-8bit",
    "apollo": "apollo-adamw",
}
"""Other names of optimizers that project gradients to a rank, which a launch file states apart."""


BESIDE = ("torch", "pytorch", "torchao", "bnb", "bitsandbytes", "apex", "optim", "optimizer", "states", "with")
"""Words next to an optimizer's name that leave open which one it is: libraries that have most of them, and fillers."""


BACKWARD = "in[ -](?:backward|bwd)|per[ -]layer|layer-?wise"
"""Words that say that an optimizer steps in the backward pass, as soon as a layer's gradients are there."""


def in_words(text: str) -> tuple[str, bool]:
    """Return the name of the optimizer in a source's words, and whether these say that it runs in the backward pass:
    `bnb AdamW (8-bit)`, `bitsandbytes.optim.PagedAdamW, optimizer in backward`."""
    import re  # slow to load, and read from rows alone

    words, colon, rank = text.lower().replace("_torch", "").replace("_", "-").partition(":")
    bits, paged, form = (
        re.search(rf"\b({one})", words) for one in ("[48](?=[ -]?bit)", r"paged\b", r"(?:fused|foreach)\b")
    )
    backward = re.search(rf"\b({BACKWARD})\b", words)
    words = re.sub(rf"\b([48][ -]?bits?|paged|fused|foreach|{BACKWARD})\b", "", re.split(r"[(,]", words)[0])
    name = "-".join(part for part in re.split(r"[ .-]+", words) if part and part not in BESIDE)
    size = f"-{bits[1]}bit" if bits else f"-{form[1]}" if form else ""
    return f"{'paged-' if paged else ''}{name}{size}{colon}{rank.strip()}", backward is not None


def find(text: str, where: str = "--optimizer", form: str | None = None) -> tuple[Optimizer, str | None]:
    """Return (optimizer, form) for a name such as adamw, adamw-fused or AdamW_fused; form is None if not named. `form`:
    the value of --optimizer-form, which must not contradict the name. Raises NapkinError for a name, a rank or a form
    that is not known. where: what the message names."""
    word = text.strip().lower().replace("_", "-")
    named = next((f for f in FORMS if word.endswith(f"-{f}")), None)
    if named is not None:
        word = word[: -len(named) - 1]
    word, colon, rank = word.partition(":")
    word = SPELLINGS.get(word) or _PROJECTING.get(word, word)
    if colon and word in PROJECTED:
        chosen = plain(rank)
        if chosen is None or not 0 < chosen <= MOST_RANK:
            raise NapkinError(f"{where}: {rank[:20]!r} is not a rank", f"{word}:{RANK} projects to rank {RANK}")
        return _formed(PROJECTED[word](chosen), named, form, where, text)
    if word in UNMODELED:
        raise Refused(
            f"{where}: napkin does not model {word}, which {UNMODELED[word]}", "napkin optimizer lists others"
        )
    if word not in OPTIMIZERS or colon:
        shown = "".join(c for c in text.strip()[:40] if c.isprintable())
        raise NapkinError(
            f"{where}: unknown optimizer {shown!r}", did_you_mean(word, OPTIMIZERS) or "napkin optimizer lists them"
        )
    return _formed(OPTIMIZERS[word], named, form, where, text)


def with_momentum(optimizer: Optimizer) -> Optimizer | None:
    """Return the same optimizer with momentum; None if it has some, or never does."""
    return OPTIMIZERS.get(f"{optimizer.name}-momentum")


def _formed(
    optimizer: Optimizer, named: str | None, form: str | None, where: str, text: str
) -> tuple[Optimizer, str | None]:
    """Return an optimizer with the form of its step from its name or --optimizer-form."""
    if named is not None and form is not None and named != form:
        raise NapkinError(
            f"a contradiction: {where} {text.strip()} and --optimizer-form {form}", "leave out one of the two"
        )
    chosen = named or form
    if chosen is not None and chosen not in optimizer.forms:
        raise NapkinError(f"{optimizer.name} has no {chosen} form", f"it has {', '.join(optimizer.forms)}")
    return optimizer, chosen
