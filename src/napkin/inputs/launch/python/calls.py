"""Find the calls in a Python program that configure TRL, transformers' Trainer, peft or unsloth.

The program is parsed, never executed. Literals are read, and names that are assigned one literal. Values that are
computed, parsed from the command line or set in a branch are open.
"""

from __future__ import annotations

import ast

from napkin.errors import Refused
from napkin.inputs.launch.python.names import Names, Values, called, constants, flat, names_of, parts_of, shown, truth
from napkin.inputs.launch.python.settings import parameters_of, settings_of
from napkin.inputs.launch.source import FileValue
from napkin.inputs.launch.values import Open
from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ARGUMENTS = "TrainingArguments"
KINDS = ("SFT", "DPO", "GRPO", "KTO", "ORPO", "Reward", "RLOO", "PPO", "CPO", "BCO", "GKD", "GOLD", "PRM", "XPO",
         "OnlineDPO", "NashMD", "SDPO", "AsyncGRPO", "MiniLLM", "SDFT")  # fmt: skip
"""TRL's trainers; each has a Config and a Trainer class."""
CONFIGS = {f"{kind}Config": kind.lower() for kind in KINDS} | dict.fromkeys(
    (ARGUMENTS, f"Seq2Seq{ARGUMENTS}", f"Unsloth{ARGUMENTS}"), ""
)
TRAINERS = {f"{kind}Trainer": kind.lower() for kind in KINDS} | dict.fromkeys(
    ("Trainer", "Seq2SeqTrainer", "UnslothTrainer"), ""
)
FAST = ("FastLanguageModel", "FastModel", "FastVisionModel", "FastTextModel")
"""unsloth's models."""
OF_LORA = {
    "r": "lora_r",
    "target_modules": "lora_target_modules",
    "modules_to_save": "lora_modules_to_save",
    "use_dora": "use_dora",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "bias": "lora_bias",
    "task_type": "lora_task_type",
    "use_rslora": "use_rslora",
}
"""Arguments of peft's LoraConfig and unsloth's get_peft_model → keys of TRL's ModelConfig."""
SPREAD = ("model_init_kwargs", "quantization_config")
"""Arguments whose value is a mapping; its keys are read as keys."""
OF_MODEL = {"pretrained_model_name_or_path": "model_name_or_path", "model_name": "model_name_or_path"}
ELSEWHERE = "give model, batch, sequence and layout as options, or write them as keyword arguments with literal values"


@record
class Call:
    """A call in a program.

    where  the callee, for messages                      names, outer  names of its function and of the module
    sure   it runs whenever its function runs            targets       names that its result is assigned to
    """

    node: ast.Call
    where: str
    names: Names
    outer: Names
    sure: bool
    targets: tuple[str, ...] = ()


class TrainingProgram:
    """The calls of a program that configure a training run, as keys of TRL's and transformers' arguments."""

    def __init__(self, tree: ast.Module, name: str) -> None:
        self.name = name
        self.values: dict[str, FileValue] = {}
        self.lines: dict[tuple[object, ...], int] = {}
        self.bases = _bases(tree)
        self.written: list[tuple[str, ast.Attribute, ast.expr, Call | None]] = []
        self.calls = self._all_calls(tree)
        self.loaded = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
        self.shared: set[str] = set()
        """Arguments that belong to the program's other trainers."""

    def _all_calls(self, tree: ast.Module) -> list[Call]:
        """Return every call of the program with the names in its scope."""
        outer = names_of(tree.body)
        changed = {name for one in ast.walk(tree) if isinstance(one, ast.Global) for name in one.names}
        outer |= dict.fromkeys(changed & outer.keys()) | settings_of(tree)
        found = _calls_in(tree.body, outer, {})
        for one in ast.walk(tree):
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
                inner = names_of(one.body, parameters_of(tree, one, outer), outer)
                found += _calls_in(one.body, outer, inner)
        return sorted(found, key=lambda call: (call.node.lineno, call.node.col_offset))

    def kind(self, call: Call) -> str:
        """Return the class that a call instantiates, or the trainer class that it derives from."""
        word = called(call.node)
        return self.bases.get(word, word)

    def is_idle(self, call: Call) -> bool:
        """Return whether a call's result is assigned to names that the program never uses."""
        return bool(call.targets) and not self.loaded & set(call.targets)

    def of_kind(self, table: dict[str, str]) -> list[Call]:
        return [one for one in self.calls if self.kind(one) in table]

    # keys

    def add(self, key: str, where: str, value: Any, line: int, taken: tuple[str, ...] = ()) -> None:
        """Add a key; it becomes open if two values differ."""
        before = self.values.get(key)
        if before is not None and before.value != value:
            value = Open(f"{before.key} and {where}")
        self.values[key] = FileValue(where, value, taken)
        self.lines.setdefault(tuple(where.split(".")), line)

    def take(self, call: Call, words: dict[str, str] | None = None, prefix: str = "") -> None:
        """Add a call's keyword arguments, renamed by `words` or prefixed."""
        for one in call.node.keywords:
            if one.arg is None:
                self._take_spread(call, one.value, words, prefix)
            else:
                self._take_keyword(call, one.arg, one.value, words, prefix)

    def _take_spread(self, call: Call, node: ast.expr, words: dict[str, str] | None, prefix: str) -> None:
        """Add the entries of `**{…}`, or of a name assigned a dict."""
        meant = Values((call.outer, call.names)).expression(node.id) if isinstance(node, ast.Name) else node
        parts = parts_of(meant) if meant is not None else None
        if parts is None:
            raise Refused(
                f"{self.name}:{call.node.lineno}: {call.where} takes settings from **{shown(node)}, which the file "
                "does not write out",
                ELSEWHERE,
            )
        for key, value in parts:
            self._take_keyword(call, key, value, words, prefix)

    def _take_keyword(self, call: Call, name: str, node: ast.expr, words: dict[str, str] | None, prefix: str) -> None:
        known = Values((call.outer, call.names))
        meant = known.expression(node.id) if isinstance(node, ast.Name) else None
        parts = parts_of(meant if meant is not None else node)
        if parts is not None:
            for inner, part in parts:
                self._take_keyword(call, f"{name}.{inner}", part, words, prefix)
            return
        block, _, last = name.rpartition(".")
        key = last if block in SPREAD else (words or {}).get(name, prefix + name)
        value: Any = known.of(node)
        if not call.sure and not isinstance(value, Open) and value is not None:
            value = Open(f"{call.where} in a branch")
        self.add(key, f"{call.where}.{name}", value, node.lineno, tuple(known.conditions))


def _bases(tree: ast.Module) -> dict[str, str]:
    """Return the classes of a program that derive from a trainer's or its arguments' → that class; those that share a
    name with one and derive from none → ""."""
    found = {}
    for one in ast.walk(tree):
        if isinstance(one, ast.ClassDef):
            words = [ast.unparse(base).rpartition(".")[2] for base in one.bases]
            base = next((word for word in words if word in TRAINERS or word in CONFIGS), "")
            if base or one.name in TRAINERS or one.name in CONFIGS:
                found[one.name] = base
    return found


def _calls_in(body: list[ast.stmt], outer: Names, inner: Names) -> list[Call]:
    """Return the calls in a body, excluding those inside nested functions and classes."""
    found = []
    known = {name: node for name, node in constants(outer).items() if name not in inner} | constants(inner)
    for one, sure in flat(body, known):
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        targets: tuple[str, ...] = ()
        if isinstance(one, ast.Assign):
            targets = tuple(each.id for part in one.targets for each in ast.walk(part) if isinstance(each, ast.Name))
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            targets = (one.target.id,)
        heads = _heads(one)
        for node in (each for head in heads for each in ast.walk(head)):
            if isinstance(node, ast.Call):
                mine = targets if node is getattr(one, "value", None) else ()
                runs = _runs(one, node, known)
                if runs is not False:
                    found.append(Call(node, called(node), inner, outer, sure and bool(runs), mine))
    return found


def _heads(statement: ast.stmt) -> list[ast.AST]:
    """Return a statement's expressions, excluding nested statements."""
    inside = (ast.stmt, ast.ExceptHandler, ast.match_case)
    return [one for one in ast.iter_child_nodes(statement) if not isinstance(one, inside)]


def _runs(statement: ast.stmt, node: ast.Call, known: Names) -> bool | None:
    """Return whether a call runs when its statement does; None if a conditional expression, `a if b else c`, whose
    condition is unknown chooses it."""
    runs: bool | None = True
    for one in ast.walk(statement):
        if isinstance(one, ast.IfExp):
            inside = [node in ast.walk(part) for part in (one.body, one.orelse)]
            if any(inside):
                test = truth(one.test, known)
                if test is None:
                    runs = None
                elif inside[test]:  # the other one is taken
                    return False
    return runs
