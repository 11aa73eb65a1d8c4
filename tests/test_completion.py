"""What bash, zsh and fish offer after <Tab>: asked through their protocol, and by driving the shells that are here."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

from napkin.cli import shells
from napkin.cli.completion import candidates
from napkin.commands.command import MODULES, find
from napkin.options.registry import OPTIONS
from tests.conftest import ROOT, Napkin

CASES = [
    ("napkin me", ["memory"]),
    ("napkin memory --har", ["--hardware", "--hardware-file"]),
    ("napkin memory llama3-8b --hardware h1", ["h100", "h100-sxm-80gb"]),
    ("napkin step llama3-8b --hardware b2", ["b200"]),
    ("napkin memory llama3-", ["llama3-8b", "llama3-70b"]),
    ("napkin memory llama3-8b --recompute s", ["selective"]),
    ("napkin memory llama3-8b --precision bf16-", ["bf16-mixed", "bf16-pure"]),
    ("napkin memory llama3-8b --optimizer adam", ["adamw", "adam"]),
    ("napkin memory llama3-8b --framework deep", ["deepspeed"]),
    ("napkin memory llama3-8b --attention f", ["flash"]),
    ("napkin memory llama3-8b --offload optimizer,a", ["optimizer,activations"]),
    ("napkin roofline transfer 80GB --link pc", ["pcie5"]),
    ("napkin hardware mi3", ["mi300x"]),
    ("napkin dtype bf", ["bf16"]),
    ("napkin optimizer mu", ["muon"]),
    ("napkin help st", ["step"]),
    ("napkin sweep mem", ["memory"]),
    ("napkin sweep memory llama3-8b --over gp", ["gpus="]),
    ("napkin vram llama3-8b --har", ["--hardware"]),
]


def after(line: str) -> list[str]:
    """The candidates after a line."""
    *before, word = line.split(" ")
    return [value for value, _ in candidates(before[1:], word)]


@pytest.mark.parametrize(("line", "wanted"), CASES)
def test_candidates(line: str, wanted: list[str]) -> None:
    found = after(line)
    assert set(wanted) <= set(found)
    assert all(value.startswith(line.rsplit(" ", 1)[1]) for value in found)


def test_every_command_and_option_is_offered() -> None:
    assert after("napkin ") == list(MODULES)
    for name in MODULES:
        command = find(name)
        options = {OPTIONS[one].shown for one in (*command.takes, *command.figures) if not OPTIONS[one].positional}
        assert options <= set(after(f"napkin {name} --"))


def test_an_option_that_was_given_and_other_spellings_are_not_offered() -> None:
    found = after("napkin memory llama3-8b --gpus 8 --")
    assert "--gpus" not in found
    assert "--num-gpus" not in found
    assert "--tp" in found


def test_the_choices_of_every_option_are_offered() -> None:
    for name in MODULES:
        command = find(name)
        for option in (OPTIONS[one] for one in command.takes):
            if option.choices and not option.flag:
                assert set(option.choices) <= set(after(f"napkin {name} --{option.name} "))


def test_an_equal_sign_is_completed_in_both_ways_that_shells_split_words() -> None:
    assert "--hardware=h100" in after("napkin memory --hardware=h1")
    split = [value for value, _ in candidates(["memory", "--hardware", "="], "h1", splits=True)]
    assert "h100" in split


def test_a_path_is_left_to_the_shell() -> None:
    assert after("napkin memory ./con") == []
    assert after("napkin memory llama3-8b --run ") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_protocol_of_each_shell(napkin: Napkin, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    words = "napkin memory llama3-8b --hardware h1"
    monkeypatch.setenv("COMP_WORDS", words.replace(" ", "\n"))
    monkeypatch.setenv("COMP_CWORD", "h1" if shell == "fish" else "4")
    monkeypatch.setenv("_NAPKIN_COMPLETE", f"complete_{shell}")
    lines = napkin("").out.splitlines()
    assert "h100" in [line.partition("\t")[0] for line in lines]
    monkeypatch.setenv("_NAPKIN_COMPLETE", f"source_{shell}")
    assert napkin("").out == napkin(f"--show-completion {shell}").out == shells.SCRIPTS[shell]


@pytest.fixture
def program(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with a `napkin` that runs this checkout."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "napkin"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}/src exec {sys.executable} -m napkin "$@"\n')
    script.chmod(0o755)
    return folder


def in_a_shell(argv: list[str], program: pathlib.Path) -> str:
    environment = {**os.environ, "PATH": f"{program}:{os.environ['PATH']}", "HOME": str(program.parent)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=environment, stdin=subprocess.DEVNULL)
    return done.stdout


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_itself(program: pathlib.Path) -> None:
    code = f"""{shells.BASH}
COMP_WORDS=(napkin memory llama3-8b --precision bf16-); COMP_CWORD=4
_napkin_completion napkin bf16- --precision; printf '%s\\n' "${{COMPREPLY[@]}}"
COMP_WORDS=(napkin memory --hardware = 'h10'); COMP_CWORD=4
_napkin_completion napkin h10 =; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    found = in_a_shell(["bash", "--norc", "-c", code], program).split()
    assert {"bf16-mixed", "bf16-pure", "h100"} <= set(found)


@pytest.mark.skipif(not shutil.which("fish"), reason="needs fish")
def test_fish_itself(program: pathlib.Path) -> None:
    code = f"{shells.FISH}\ncomplete --do-complete 'napkin memory llama3-8b --hardware h10'"
    found = [line.partition("\t")[0] for line in in_a_shell(["fish", "--no-config", "-c", code], program).splitlines()]
    assert "h100" in found


@pytest.mark.skipif(not shutil.which("zsh"), reason="needs zsh")
def test_zsh_itself(program: pathlib.Path) -> None:
    """A zsh on a terminal of its own, with <Tab> typed into it."""
    import pty
    import select

    home = program.parent
    (home / ".zshrc").write_text(f"PROMPT='> '\nautoload -Uz compinit; compinit -u -D\n{shells.ZSH}")
    child, terminal = pty.fork()
    if child == 0:
        environment = {"PATH": f"{program}:{os.environ['PATH']}", "HOME": str(home), "TERM": "xterm", "LANG": "C.UTF-8"}
        os.execve(shutil.which("zsh") or "zsh", ["zsh", "-i"], environment)
    seen = ""

    def read_until(wanted: str, seconds: float = 30) -> bool:
        nonlocal seen
        end = time.monotonic() + seconds
        while wanted not in seen and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                seen += os.read(terminal, 65536).decode("utf-8", "replace")
        return wanted in seen

    try:
        assert read_until("> "), seen
        os.write(terminal, b"napkin memory llama3-8b --recompute sel\t")
        assert read_until("selective"), seen
        os.write(terminal, b"--precisi\t")
        assert read_until("--precision"), seen
    finally:
        os.write(terminal, b"\x03exit\n")
        os.close(terminal)
        os.waitpid(child, 0)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_installing_asks_and_is_done_once(
    napkin: Napkin, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, shell: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    refused = napkin(f"--install-completion {shell}")
    assert refused.status == 2
    assert "--yes" in refused.hints[0]
    assert not list(tmp_path.iterdir())
    for _ in range(2):
        assert napkin(f"--install-completion {shell} --yes").status == 0
    place, reader = (os.path.expanduser(path) for path in shells.PLACES[shell])
    assert pathlib.Path(place).read_text() == shells.SCRIPTS[shell]
    if reader:
        assert pathlib.Path(reader).read_text().count("completion") == 2  # its test and its reading, once


def test_an_unknown_shell_is_refused(napkin: Napkin) -> None:
    outcome = napkin("--show-completion tcsh")
    assert outcome.status == 2
    assert "bash" in outcome.hints[0]
