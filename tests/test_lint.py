"""Rules about configurations: what each finds and what it costs, by hand; selection, comments, exit statuses."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from napkin.rules.registry import CONTRADICTIONS, laws
from napkin.rules.rule import ERROR, Law
from tests.conftest import ROOT, Napkin, answered, run_line, written

EVERY = laws()


def rows(line: str) -> list[Mapping[str, Any]]:
    return list(answered(line).rows or ())


def numbers(line: str) -> list[str]:
    return [row["rule"] for row in rows(line)]


@pytest.mark.parametrize("rule", [rule for rule in EVERY if rule.example], ids=lambda rule: rule.number)
def test_every_rule_fires_on_its_example_and_not_on_the_mended_one(rule: Law) -> None:
    """The round trip: the command of a row is the configuration with its change."""
    found = [row for row in rows(f"lint {rule.example} --select {rule.number}") if row["rule"] == rule.number]
    assert found, rule.example
    command = found[0]["command"]
    if command is not None:
        assert rule.number not in numbers(command.removeprefix("napkin ")), command


def test_numbers_and_names_are_unique_and_in_their_groups() -> None:
    assert len({rule.number for rule in EVERY}) == len({rule.name for rule in EVERY}) == len(EVERY)
    assert all(rule.number.startswith("N4") for rule in CONTRADICTIONS)
    assert {rule.number for rule in CONTRADICTIONS if rule.severity != ERROR} == {"N497"}  # the run works


def test_the_price_of_a_bubble_by_hand() -> None:
    """1F1B with equal stages: the bubble is p−1 of m+p−1 slots; 80 layers on 4 stages, and a head of 1.2 layers."""
    line = "llama3-70b --gpus 32 --tp 8 --pp 4 --hardware h100 --global-batch 4 --recompute full --stack megatron-core"
    found = next(row for row in rows(f"lint {line} --select N105"))
    before, after = (
        answered(f"step {one}").quantities()["step/time"][0] for one in (line, f"{line} {found['change']}")
    )
    assert found["time"] == pytest.approx(1 - after / before)
    share = answered(f"step {line}").quantities()["step/bubble"][0] / before
    assert share == pytest.approx(3 / 7, rel=0.1)  # the last stage is the slowest, and there is an optimizer
    assert f"{share:.0%}" in found["message"]


def test_idle_ranks_by_hand() -> None:
    """96 sequences on 64 ranks take two rounds of 64: 32 of 128 places are empty."""
    (row,) = rows("lint llama3-8b --gpus 64 --zero 3 --global-batch 96 --select N405")
    assert row["time"] == pytest.approx(32 / 128)
    assert row["change"] == "--global-batch 128"


@pytest.mark.parametrize(("framework", "least"), [("deepspeed", 2), ("megatron-deepspeed", 2), ("megatron-core", None)])
def test_a_pipeline_of_deepspeed_refuses_divided_gradients(framework: str, least: int | None) -> None:
    """deepspeed/runtime/pipe/engine.py: the ZeRO stage is below that of gradients, 2. Megatron-core has no such."""
    refused = [
        stage
        for stage in range(4)
        if rows(f"lint llama3-8b --gpus 16 --pp 4 --zero {stage} --framework {framework} --select N409")
    ]
    assert refused == ([] if least is None else list(range(least, 4)))


def test_no_fewer_gpus_are_advised_for_what_does_not_fit(napkin: Napkin) -> None:
    """8 replicas of 1,130 GB of states each: the GPUs wait for each other, and one alone would not hold a replica."""
    rows = napkin("lint llama3-70b --gpus 8 --hardware h100 --seq 2048 --json").data["rows"]
    assert "N201" in {row["rule"] for row in rows}
    assert "N303" not in {row["rule"] for row in rows}


def test_statuses(napkin: Napkin) -> None:
    fits = "llama3-8b --gpus 64 --hardware h100 --zero 3 --framework fsdp"
    assert napkin(f"lint {fits}").status == 0
    assert napkin("lint llama3-8b --gpus 1 --hardware h100").status == 1
    assert napkin("lint llama3-8b --gpus 12 --tp 8").status == 1
    assert napkin("lint llama3-8b --gpus 64 --hardware h100 --seq 1.5").status == 2
    assert napkin("lint llama3-8b --select N9").status == 2
    assert napkin("lint no-such-file.yaml").status == 2
    assert napkin("lint llama3-8b --gpus 8 --hardware h100 --zero 3 --seq 8192").status == 4


@pytest.mark.parametrize("rule", [rule for rule in EVERY if rule.example], ids=lambda rule: rule.number)
def test_a_finding_is_seen_at_80_columns(rule: Law) -> None:
    line = f"lint {rule.example} --select {rule.number}"
    text = written(line)
    assert max(map(len, text.splitlines())) <= 80, text
    words = " ".join(text.split())
    for row in rows(line):
        assert row["message"] in words
        assert (row["change"] or "") in words


def layouts(count: int) -> list[str]:
    """Draw layouts, most of which do not divide something."""
    draw = random.Random(7)
    lines = []
    for _ in range(count):
        model = draw.choice(["llama3-8b", "mixtral-8x7b", "gpt2"])
        options = {name: draw.choice([1, 1, 1, 2, 3, 4, 8]) for name in ("tp", "pp", "cp", "vp")}
        options["gpus"] = draw.choice([8, 12, 16, 24, 64])
        options |= {"seq": draw.choice([512, 1000, 1024]), "micro-batch": draw.choice([1, 2, 3])}
        if model == "mixtral-8x7b":
            options["ep"] = draw.choice([1, 2, 3, 4])
        if draw.random() < 0.5:
            options["global-batch"] = draw.choice([16, 64, 96, 100])
        if draw.random() < 0.2:
            options["dp"] = draw.choice([1, 2, 4])
        kept = {name: value for name, value in options.items() if name != "vp" or options["pp"] > 1}
        lines.append(f"{model} " + " ".join(f"--{name} {value}" for name, value in kept.items()))
    return lines


@pytest.mark.parametrize("line", layouts(60))
def test_what_contradicts_itself_is_what_is_refused(line: str) -> None:
    """A rule about contradictions fires exactly if the same options are refused for what they are together."""
    refused = run_line(f"memory {line}").status == 2
    outcome = run_line(f"lint {line} --select N4 --json")
    assert (outcome.status == 1) == refused, outcome.err
    assert bool(outcome.data["rows"]) == refused


def test_tables_that_are_read_several_times_are_looked_at_once() -> None:
    """LayoutLM's of boxes: a file of its default sizes is linted."""
    rows = json.loads(Path(ROOT, "tests/data/default_configs.json").read_text(encoding="utf-8"))["rows"]
    fields = json.dumps({**dict(rows)["layoutlm"], "model_type": "layoutlm"})
    for seq, longer in ((64, False), (4096, True)):
        found = run_line(f"lint - --gpus 8 --hardware h100 --seq {seq} --json", stdin=fields)
        assert found.status in (0, 1)
        assert ("learned positions" in found.out) == longer


def test_nothing_to_check_is_named(napkin: Napkin) -> None:
    refused = napkin("lint --hardware h100")
    assert refused.status == 2
    assert "FILE or MODEL is missing" in refused.err


def test_what_a_library_of_kernels_fuses_does_not_run_as_separate_kernels() -> None:
    """Liger's kernels are norms, rotary embeddings and gated activations; unsloth's MLP is one with adapters only."""
    line = "lint llama3-8b --gpus 8 --hardware b200 --zero 3 --stack fsdp-eager --select N116 --kernels"
    said = {kernels: [row["message"] for row in rows(f"{line} {kernels}")] for kernels in ("none", "liger", "unsloth")}
    assert said["liger"] == []
    assert [one.partition(" run ")[0] for one in said["none"] + said["unsloth"]] == [
        "norms and activations",
        "activations",
    ]
