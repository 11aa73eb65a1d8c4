"""Pages of docs/ that tools/tables.py writes from the program's own records: launch files and rules of the linter."""

from __future__ import annotations

LAUNCH_FILES = """# Launch files of other frameworks

`--from FILE` sets options of any command from the file that starts a run: a trainer's or framework's YAML, JSON or
TOML, a launch script, a Python file of assignments, or a Python program (if it starts several runs, select one by its
line: `--from train.py:40`). It is repeatable (`--from accelerate.yaml --from train.yaml`), and options on the command
line win. A launch script may name a settings file (`sft.py --config recipe.yaml`, or Hydra's `--config-name recipe`):
that file is read, with those of its `defaults:`, and the script's own options win over it. `napkin read FILE`
prints how the file was understood and computes nothing:

- each option, its origin (from file, derived from several keys, the framework's default, assumed) and its keys;
- not modeled: keys that could affect memory or time;
- refused: keys that would make the answer wrong; `read` prints the rest, other commands stop with an error;
- irrelevant: keys that affect neither memory nor time.

A file's format is detected from its content, not its name, and nothing in it is executed. Scripts are followed as they
run without arguments, as far as their own text determines; a value that an argument or an external variable would
override is a default, and the answer names that variable. An option that a file leaves open (`auto`, -1, an argument
without a default) must be set on the command line.

This page is written by `make tables` from the declarations in src/napkin/inputs/launch/formats.
"""


def launch_files() -> str:
    """Return the page of launch files: each format's keys and their options, and its keys without an option."""
    from napkin.inputs.launch.read import formats

    parts = [LAUNCH_FILES]
    for one in formats():
        parts.append(f"\n## {one.says}\n\nSource: {one.source}.\n\n| keys | options | meaning |\n|---|---|---|\n")
        fixed = ", ".join(f"{option} {value}" for option, value in one.fixed.items())
        rows = [("the format", "", fixed)] if fixed else []
        for key in one.keys:
            default = f"default {key.default}" if key.default is not None else ""
            rows.append((code(key.key.split("|")), f"`{key.option}`", default))
        for rule in one.rules:
            words = rule.options.split()
            named = " ".join(f"`{word}`" for word in words)
            rows.append((code(rule.keys.replace("|", " ").split()), named, rule.says))
        parts += (f"| {keys} | {options} | {says} |\n" for keys, options, says in rows)
        other = [(keys, f"not modeled: {why}") for keys, why in one.not_modelled.items()]
        other += [(keys, f"refused: {why}") for keys, why in one.refused.items()]
        if other:
            parts.append("\n| keys without an option | why |\n|---|---|\n")
            parts += (f"| {code(keys.split())} | {why} |\n" for keys, why in other)
    return "".join(parts)


LINT_RULES = """# Rules of `napkin lint`

What each rule looks for, and the law behind it. [lint.md](lint.md) says how they are asked, ignored and priced. A rule
is reported where its change is worth its least price or more, by the same models as `napkin step` and `napkin memory`;
contradictions have no price. This page is written by `make tables` from the records in src/napkin/rules.
"""


def lint_rules() -> str:
    """Return the page of the linter's rules, group by group."""
    from napkin.rules.registry import GROUPS, laws
    from napkin.rules.rule import Rule

    parts = [LINT_RULES]
    for begins, title in GROUPS.items():
        rules = [rule for rule in laws() if rule.number.startswith(begins)]
        parts.append(f"\n## {begins}: {title}\n" if rules else "")
        for rule in rules:
            priced = (
                f"from {rule.least:.0%} of {LEAST[rule.gains]} on"
                if isinstance(rule, Rule) and rule.gains in LEAST
                else ""
            )
            said = "; ".join(part for part in (rule.severity, priced) if part)
            parts.append(f"\n### {rule.number} {rule.name}\n\n{rule.summary} ({said}). {rule.why}\n\n")
            parts.append(f"Breaks it: `napkin lint {rule.example}`\n" if rule.example else "")
            parts.append(f"\nSource: {'; '.join(rule.sources)}.\n" if rule.sources else "")
    return "".join(parts)


LEAST = {"time": "a step", "memory": "a GPU's memory", "either": "a step or of a GPU's memory"}
"""What a rule's price is in → what its threshold is a share of."""


def code(words: list[str]) -> str:
    """Return words as code, at most a dozen of them."""
    shown = " ".join(f"`{word}`" for word in words[:12])
    return shown + (" …" if len(words) > 12 else "")
