"""Screen of `mfu`: one judged number, then the same speed under other conventions."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.commands.next_command import under
from napkin.render.answer import Answer
from napkin.render.screen import Column, Next, Screen, Table
from napkin.term import Term
from napkin.units import human

SAYS = {
    "palm": "6N + full attention (PaLM)",
    "6nd": "6 × parameters",
    "6nd_non_embedding": "6 × non-embedding parameters",
    "nanogpt": "nanoGPT: 6N + attention",
    "megatron": "Megatron-LM's formula",
    "causal": "attention halved (causal)",
    "torch": "as torch counts them",
    "exact": "the pairs that masks allow",
}
"""Convention → its count of the FLOPs per token."""


def of_rate(
    name: str, answer: Answer, basis: str, machine: tuple[str, str], remarks: Sequence[str], rare: bool
) -> Screen:
    """Return the screen of a measured rate; basis: the convention that is judged, machine: name and dtype; rare: the
    MFU is so high that its inputs are in doubt."""
    terms = answer.by_path()
    speed = f"{human(terms['tokens_per_second_per_gpu'].value, '1')} token/s per GPU"
    hardware, dtype = machine
    named = "model" in answer.inputs or any(path.startswith("mfu/palm") for path in terms)
    peak = human(terms["peak"].value, "FLOP/s")
    word = (answer.verdict or "").upper() + " BUT RARE" * rare
    return Screen(
        [f"{name} at {speed}", hardware],
        [f"MFU {human(terms['mfu'].value, '1', 4)}", word, f"of {peak} dense {dtype} peak"],
        answer.verdict or "",
        _conventions(terms, basis),
        remarks,
        next=_next(terms, answer.verdict, named),
    )


def _next(terms: dict[str, Term], verdict: str | None, named: bool) -> Next:
    """Return the next command: the whole job's rate if one GPU's is impossible, else the step as it is predicted."""
    each, job = terms["tokens_per_second_per_gpu"], terms.get("tokens_per_second")
    one_for_all = job is not None and not each.parts and terms["mfu"].value <= job.value / each.value
    if one_for_all and verdict == "impossible":
        return Next({"tokens-per-second-per-gpu": None, "tokens-per-second": f"{each.value:.12g}"})
    return under("step") if named else Next({"explain": True})


def _conventions(terms: dict[str, Term], basis: str) -> Table:
    """Return MFU, HFU if anything is recomputed, and FLOP/s in each convention, the judged one first."""
    names = [path.removeprefix("mfu/") for path in terms if path.startswith("mfu/") and path != "mfu/claimed"]
    names.sort(key=lambda name: name != basis)
    again = any(terms[f"hfu/{name}"].value != terms[f"mfu/{name}"].value for name in names if f"hfu/{name}" in terms)
    columns = [Column("counted as"), Column("MFU", True), *([Column("HFU", True)] if again else [])]
    rows = []
    for name in names:
        used = [
            human(terms[path].value, "1", 3) if (path := f"{kind}/{name}") in terms else "–"
            for kind in (("mfu", "hfu") if again else ("mfu",))
        ]
        done = human(terms[f"flops_per_second/{name}"].value, "FLOP/s")
        rows.append((name, *used, done, SAYS.get(name, "")))
    return Table([*columns, Column("per GPU", True, 1), Column(remark=True)], rows)
