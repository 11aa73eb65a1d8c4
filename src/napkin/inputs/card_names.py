"""Names of accelerators as people write them: in another order, with the memory, the power or the maker's product line
that the name alone implies (`A100 80GB SXM4`, `L4 24GB`, `Tesla V100`)."""

from __future__ import annotations

import re

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MAKERS = {
    **dict.fromkeys(("nvidia", "tesla", "geforce"), "nvidia"),
    **dict.fromkeys(("amd", "instinct", "radeon"), "amd"),
    **{maker: maker for maker in ("intel", "google", "aws", "apple")},
}
"""Makers and their product lines, as written before a name."""
SIZE = re.compile(r"(\d+)(?:gb|gib|g)")
WATTS = re.compile(r"(\d+)w")
FORM = re.compile(r"(sxm|pcie|nvl)\d?")
"""Form factors."""
SAID_ANYWAY = re.compile(r"gpus?|oam|hbm\w*|gddr\w*")
"""Words that do not distinguish accelerators."""


def in_other_words(asked: str, names: Mapping[str, str], accelerators: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table's name for a normalized name, "" if there is none. Whatever else the normalized name states
    (maker, memory in GB, power, form factor) must be true of the accelerator."""
    words = [
        word
        for word in re.sub(r"(\d)-(gb|gib|g)\b", r"\1\2", asked).replace("(", "-").replace(")", "-").split("-")
        if word
    ]
    makers = {MAKERS[word] for word in words if word in MAKERS}
    sizes = [found[1] for word in words if (found := SIZE.fullmatch(word))]
    watts = [found[1] for word in words if (found := WATTS.fullmatch(word))]
    forms = [word for word in words if FORM.fullmatch(word)]
    rest = [
        word
        for word in words
        if word not in (*MAKERS, *forms) and not any(one.fullmatch(word) for one in (SIZE, WATTS, SAID_ANYWAY))
    ]
    if not any(any(letter.isdigit() for letter in word) for word in rest) or len(forms) > 1 or len(sizes) > 1:
        return ""
    squeezed = {name.replace("-", ""): name for name in names}
    form = "".join(forms)
    for way in dict.fromkeys((form, form.rstrip("0123456789"), "")):
        for size in dict.fromkeys((*(f"{one}gb" for one in sizes), "")):
            name = squeezed.get("".join((*rest, way, size)), "")
            fields = accelerators[names[name]] if name else {}
            if name and _holds(fields, makers, [] if size else sizes, watts, "" if way else form):
                return name
    return ""


def _holds(fields: Mapping[str, Any], makers: set[str], sizes: list[str], watts: list[str], form: str) -> bool:
    """Return whether the maker, memory, power and form factor in a name are true of the accelerator."""
    link = str(fields.get("link_name", "")).lower()
    built_in = str(fields["name"]).lower() + (" pcie" if "pcie" in link or "bridge" in link else "")
    return (
        makers <= {str(fields.get("vendor", "")).lower()}
        and all(float(one) == round(fields["memory"] / 1e9) for one in sizes)
        and all(float(one) == fields.get("tdp_w") for one in watts)
        and form.rstrip("0123456789") in built_in
    )
