"""Completion scripts for bash, zsh and fish, and their installation."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from napkin.errors import NapkinError, did_you_mean

BASH = """\
_napkin_completion() {
    local IFS=$'\\n'
    COMPREPLY=($(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _NAPKIN_COMPLETE=complete_bash "$1" 2>/dev/null))
    case "${COMPREPLY[0]-}" in *=) compopt -o nospace 2>/dev/null ;; esac
    return 0
}
complete -o bashdefault -o default -F _napkin_completion napkin
"""
ZSH = """\
#compdef napkin
_napkin_completion() {
    local -a lines values shown
    local line tab=$'\\t'
    lines=("${(@f)$(COMP_WORDS="${(pj:\\n:)words}" COMP_CWORD=$((CURRENT - 1)) _NAPKIN_COMPLETE=complete_zsh \\
        "${words[1]}" 2>/dev/null)}")
    for line in $lines; do
        values+=("${line%%$tab*}")
        shown+=("${line%%$tab*}  ${line#*$tab}")
    done
    if (( ${#values} == 1 )) && [[ "${values[1]}" == *= ]]; then
        compadd -S '' -- "${values[@]}"
    elif (( ${#values} )); then
        compadd -l -d shown -- "${values[@]}"
    else
        _files
    fi
}
if ! (( $+functions[compdef] )); then autoload -Uz compinit && compinit; fi
compdef _napkin_completion napkin
"""
FISH = """\
function __napkin_completion
    set -l found (env COMP_WORDS=(string join \\n -- (commandline -opc) (commandline -ct) | string collect) \\
        COMP_CWORD=(commandline -ct) _NAPKIN_COMPLETE=complete_fish (commandline -opc)[1] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete --command napkin --no-files --arguments '(__napkin_completion)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
PLACES = {
    "bash": ("~/.local/share/napkin/completion.bash", "~/.bashrc"),
    "zsh": ("~/.local/share/napkin/completion.zsh", "~/.zshrc"),
    "fish": ("~/.config/fish/completions/napkin.fish", ""),
}
"""Shell → (path of the script, the file that must source it; fish finds it by itself)."""


def script(shell: str) -> str:
    """Return a shell's script. An unknown shell is refused (2)."""
    if shell not in SCRIPTS:
        known = ", ".join(SCRIPTS)
        raise NapkinError(f"completion is not known for {shell[:40]!r}", did_you_mean(shell, SCRIPTS) or known)
    return SCRIPTS[shell]


def this_shell() -> str:
    """Return the shell that napkin was started from: the parent process, else the login shell."""
    for number in (os.getppid(),):
        try:
            with open(f"/proc/{number}/comm", encoding="utf-8") as file:
                name = file.read().strip().lstrip("-")
        except OSError:
            continue
        if name in SCRIPTS:
            return name
    name = os.path.basename(os.environ.get("SHELL", ""))
    if name not in SCRIPTS:
        raise NapkinError("which shell?", f"napkin --install-completion {next(iter(SCRIPTS))}")
    return name


def run(words: Sequence[str]) -> int:
    """Answer `--show-completion [SHELL]` and `--install-completion [SHELL] [--yes]`."""
    yes = [word for word in words[1:] if word in ("--yes", "-y")]
    others = [word for word in words[1:] if word not in yes]
    if len(others) > 1 or (others and others[0].startswith("-")):
        raise NapkinError(f"unexpected word {others[-1][:60]!r}", f"napkin {words[0]} bash, zsh or fish")
    shell = others[0].lower() if others else this_shell()
    text = script(shell)
    if words[0] == "--show-completion":
        print(text, end="")
        return 0
    return _install(shell, text, bool(yes))


def _install(shell: str, text: str, agreed: bool) -> int:
    """Write the script and the line that reads it, after asking."""
    place, reader = PLACES[shell]
    path = os.path.expanduser(place)
    line = f"[ -f {place} ] && . {place}"
    missing = bool(reader) and line not in _lines(os.path.expanduser(reader))
    plan = [f"  write {place}"] + ([f"  add to {reader}: {line}"] if missing else [])
    print("\n".join([f"Completion for {shell}:", *plan]), file=sys.stderr)
    if not agreed and not _agrees():
        print("nothing was changed", file=sys.stderr)
        return 1
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        if missing:
            with open(os.path.expanduser(reader), "a", encoding="utf-8") as file:
                file.write(f"\n{line}\n")
    except OSError as problem:
        raise NapkinError(f"{problem.filename}: {problem.strerror}", f"napkin --show-completion {shell}") from None
    print(f"completion is on in the next {shell}")
    return 0


def _agrees() -> bool:
    if not sys.stdin.isatty():
        raise NapkinError("installing changes files, and there is no terminal to confirm it", "--yes agrees beforehand")
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return [line.strip() for line in file]
    except OSError:
        return []
