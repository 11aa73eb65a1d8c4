"""A shell's arithmetic and texts, compared with what bash itself computes."""

from __future__ import annotations

import random
import shutil
import subprocess

import pytest

from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shell.arithmetic import evaluated
from napkin.inputs.launch.syntax import source_of

LINE = "python train.py --model_name_or_path Qwen/Qwen2.5-0.5B --per_device_train_batch_size"


def script(before: str, value: str) -> Reading:
    return reading_of(source_of(f"#!/bin/bash\n{before}\n{LINE} {value}\n", "train.sh"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("17 % 5 * 2**3", 16),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("010 + 0x1f", 39),
        ("1 ? 2 : 0 ? 3 : 4", 2),
        ("0 ? 2 : 0 ? 3 : 4", 4),
        ("-2 ** 2", 4),
        ("!0 + 1", 2),
        ("1 << 4 | 1", 17),
        ("2 > 1 && 3 != 3 || 1", 1),
        ("(2 + 3) * 4 - ~0", 21),
        ("1 / 0", None),
        ("2 ** 64", None),
        ("1.5", None),
        ("1 +", None),
        ("08", None),
        ("", None),
        ("(" * 5000 + "1" + ")" * 5000, None),
    ],
)
def test_arithmetic(text: str, value: int | None) -> None:
    assert evaluated(text) == value


def _drawn(draw: random.Random, depth: int) -> str:
    if depth == 0 or draw.random() < 0.3:
        return str(draw.randint(1, 20))
    kind, inner = draw.random(), _drawn(draw, depth - 1)
    if kind < 0.2:
        return f"({inner} ? {_drawn(draw, depth - 1)} : {_drawn(draw, depth - 1)})"
    if kind < 0.4:
        return f"({inner})"
    sign = draw.choice(["+", "-", "*", "/", "%", "==", "!=", "<", ">", "<=", ">=", "&&", "||", "&", "|", "^"])
    return f"{inner} {sign} {_drawn(draw, depth - 1)}"


@pytest.mark.skipif(shutil.which("bash") is None, reason="compares with bash")
def test_arithmetic_is_that_of_bash() -> None:
    """One that napkin leaves unknown, such as a division by 0 that bash skips, is not compared."""
    draw = random.Random(11)
    texts = [_drawn(draw, 3) for _ in range(150)]
    said = subprocess.run(
        ["bash", "-c", "\n".join(f"(echo $(({one}))) 2>/dev/null || echo none" for one in texts)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    pairs = [(text, evaluated(text), given) for text, given in zip(texts, said, strict=True)]
    assert [one for one in pairs if one[1] is not None and str(one[1]) != one[2]] == []
    assert sum(one[1] is not None for one in pairs) > 100


@pytest.mark.parametrize(
    ("before", "value", "micro"),
    [
        ("TP=2", "$(( TP > 1 ? 4 : 8 ))", 4),
        ("N=5", "$(( N % 3 ))", 2),
        ("GPUS=0,1,2,3", """$(awk -F, '{print NF}' <<<"$GPUS")""", 4),
        ('LIST="a b c"', '$(wc -w <<< "$LIST")', 3),
        ("IFS=: read -r MODEL SIZE RATE <<< 'llama:6:1e-5'", "$SIZE", 6),
        ("read -r ONE REST <<< '7 8 9'", "$ONE", 7),
        ("N=3\nif (( N > 2 && N != 4 )); then B=5; else B=9; fi", "$B", 5),
        ("", "2 \\", 2),  # bash drops a backslash at the end of a script
    ],
)
def test_values_that_a_script_computes(before: str, value: str, micro: int) -> None:
    text = f"#!/bin/bash\n{before}\n{LINE} {value}"
    assert reading_of(source_of(text, "train.sh")).value_of("micro-batch") == micro


def test_values_that_a_script_does_not_tell() -> None:
    assert script("", "$(( $OTHER ? 1 : 2 ))").inputs["micro-batch"].value is None
    assert script('IFS=, read -r A B <<< "$OTHER"', "$B").inputs["micro-batch"].value is None


def test_a_command_that_asks_for_a_program_is_not_the_training() -> None:
    text = f"command -v /usr/bin/nvcc\nif ! command -v python; then exit 1; fi\n{LINE} 4\n"
    assert reading_of(source_of(text, "train.sh")).value_of("micro-batch") == 4
