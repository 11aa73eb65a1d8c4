"""A line to paste keeps its question: the command after `next:`, and that of each row and suggestion, is answered, and
has every option of the question that its command takes, but for those that it asks differently. Held over every
command, with options drawn as in test_ignored."""

from __future__ import annotations

import json
import os
import random
import shlex

import pytest

from napkin._tables.takes import TAKES
from napkin.cli.reader import read
from napkin.commands.command import ask, named
from napkin.commands.next_command import FREE
from napkin.errors import NapkinError
from napkin.options.command_line import OVERRULED, WRITTEN, Text, pieces_in, pieces_of, quoted
from napkin.options.registry import OPTIONS
from napkin.render.answer import Answer, Row
from napkin.render.page import next_pieces
from napkin.render.screen import Next
from tests.conftest import run_line
from tests.test_ignored import QUESTIONS, VALUES, drawn

SEARCHED = frozenset((*FREE, "global-batch", "gpus", "seq", "sp"))
"""What a row of `plan` states of its own layout."""
ANSWERED = (0, 1, 4)
MORE = """
sweep train-time 7B --tokens 2T --hardware a100 --over gpus=64,128
sensitivity train-time 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.4
sweep memory gpt2 --hardware a100 --batch 2 --over seq=256,512
memory llama3-70b --hardware h100 --inference --min gpus
memory gpt2 --hardware a100 --min gpus
train-time llama3-8b --tokens 1T --hardware h100 --gpus 64 --tp 2 --within 40d
train-time llama3-8b --tokens 1T --hardware h100 --tp 2 --within 40d
checkpoint --params 405B --gpus 16384 --gpu-mtbf 50000h --write-bandwidth 100GB/s
max-params --hardware h100
mfu 7B --tps 3200 --hardware a100
""".strip().splitlines()
DRAWN = 40 if os.environ.get("NAPKIN_ALL") else 3
"""Options, one at a time, that each question is asked with."""


def _suggestions(answer: Answer) -> list[Row]:
    rows = answer.extra.get("suggestions")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def lines_of(answer: Answer) -> list[tuple[str, frozenset[str]]]:
    """Return the lines that an answer proposes, and the options that each asks differently."""
    found = []
    following = answer.screen.next
    if isinstance(following, Next) and following.keep != ():
        changed = {*following.changes, *(name for name, other in OVERRULED.items() if other in following.changes)}
        dropped = {*changed, *FREE} if following.command == "plan" else changed
        found.append((" ".join(next_pieces(following, answer)), frozenset(dropped)))
    rows = [*(answer.rows or ()), *_suggestions(answer)]
    for row in rows[:2]:
        if "command" in row:
            changed = set(SEARCHED) if answer.command == "plan" else set()
            changed |= {piece.split()[0][2:].removeprefix("no-") for piece in pieces_in(str(row.get("change", "")))[1:]}
            changed |= {piece.split()[0][2:] for piece in shlex.split(str(row.get("change", ""))) if piece[:2] == "--"}
            changed |= {name for name, other in OVERRULED.items() if other in changed}
            found.append((str(row["command"]), frozenset(changed)))
    return found


def asked_with(line: str) -> list[str]:
    """Return the line by itself and with a sample of the options that its command takes."""
    random_ = random.Random(line)
    names = drawn(line)
    lines = [line]
    for name in random_.sample(names, min(DRAWN, len(names))):
        text = "" if OPTIONS[name].flag else quoted(random_.choice(VALUES[name]))
        lines.append(f"{line} --{name} {text}")
    return lines


@pytest.mark.parametrize("line", [*QUESTIONS, *MORE])
def test_what_is_proposed_is_answered_and_keeps_the_question(line: str) -> None:
    for asked in asked_with(line):
        command, words = named(shlex.split(asked))
        try:
            answer = ask(command, read(command, words).given)
        except NapkinError:
            assert asked != line
            continue
        given = {name: shown for name, shown in answer.inputs.items() if shown.origin == "given"}
        for proposed, changed in lines_of(answer):
            other, rest = named(shlex.split(proposed)[1:])
            texts = read(other, rest).given
            found = run_line(shlex.split(proposed)[1:])
            assert found.status in ANSWERED, (asked, proposed, found.err)
            assert sorted(shlex.split(proposed)) != sorted(["napkin", *shlex.split(asked)]), "asks the same again"
            kept = [name for name in given if name in TAKES[other.name.split()[0]] and name not in (*WRITTEN, *changed)]
            assert not [name for name in kept if name not in texts and name not in OVERRULED], (asked, proposed)


SHAPE = (
    "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --group-query-attention "
    "--num-query-groups 8 --seq-length 8192 --max-position-embeddings 8192 --swiglu --normalization RMSNorm "
    "--position-embedding-type rope --vocab-size 128256 --untie-embeddings-and-output-weights --micro-batch-size 1 "
    "--global-batch-size 1024 --bf16 --use-distributed-optimizer --sequence-parallel --lr 1e-4 "
    "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4"
)


@pytest.mark.parametrize(
    "question",
    [
        *(f"{command} --gpus 1024 --hardware h100" for command in ("memory", "step", "plan")),
        "train-time --gpus 64 --hardware h100 --tokens 1T",
        "mfu --gpus 1024 --hardware h100 --tps 500",
        *("params", "flops", "roofline --hardware h100", "checkpoint"),
    ],
)
def test_a_pasted_launch_is_answered_and_so_is_what_it_proposes(question: str) -> None:
    """Options of the launch that a command does not have are named; the line to paste is one for a shell."""
    answer = run_line(f"{question} {SHAPE}")
    assert answer.status in ANSWERED, answer.err
    proposed = answer.out.partition("next: ")[2]
    assert all(len(line) <= 80 for line in proposed.splitlines())
    words = shlex.split(proposed.replace("\\\n", ""))[1:]
    assert [json.loads(word)["num_hidden_layers"] for word in words if word[0] == "{"] == [80]
    assert run_line(words).status in ANSWERED, words


def test_another_card_has_neither_the_figures_nor_the_profile_of_this_one() -> None:
    given: dict[str, Text] = {"model": "relu", "hardware": "h200", "profile": "p.json", "peak-flops": "900TFLOP/s"}
    assert pieces_of("roofline", given, {"hardware": "b200"}) == ["napkin roofline relu", "--hardware b200"]
    assert len(pieces_of("roofline", given, {"seq": "8"})) == 5


def test_a_line_is_written_for_a_shell() -> None:
    given: dict[str, Text] = {
        "model": "my models/a.json",
        "gpus": "8",
        "sp": False,
        "json": True,
        "nodes": "2",
        "run": "a.yaml",
    }
    pieces = pieces_of(
        "step", given, {"gpus": "16", "seq": None, "limit": "time <= 30d"}, {"model", "gpus", "sp", "nodes"}
    )
    assert pieces == ["napkin step 'my models/a.json'", "--gpus 16", "--no-sp", "--limit 'time <= 30d'"]
    assert shlex.split(" ".join(pieces))[2] == "my models/a.json"


@pytest.mark.parametrize(
    ("line", "keeps"),
    [
        ("step llama3-8b --gpus 8 --hardware h100 --zero 3 --attention cudnn", "--attention cudnn"),
        (
            "step llama3-8b --gpus 8 --hardware h100 --micro-batch 8 --implementation megatron",
            "--implementation megatron",
        ),
        ("plan gpt2 --gpus 4 --hardware h100 --global-batch 16 --attention efficient", "--attention efficient"),
        ("plan gpt2 --gpus 4 --hardware h100 --global-batch 16 --confidence 50", "--confidence 50"),
        ("memory llama3-70b --gpus 8 --hardware h100 --zero 3 --attention eager", "--attention eager"),
        ("mfu gpt2 --tokens-per-second 98000 --gpus 8 --hardware h100 --nodes 2", "--gpus 8"),
        ("train-time llama3-8b --tokens 1T --gpus 64 --hardware h100 --seq 8192", "--seq 8192"),
    ],
)
def test_the_next_command_keeps_what_changes_its_answer(line: str, keeps: str) -> None:
    answer = run_line(line)
    assert keeps in answer.out.partition("next: ")[2].replace("\\\n        ", ""), answer.err
