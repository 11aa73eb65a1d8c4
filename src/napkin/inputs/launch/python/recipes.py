"""The recipe of a Python file of NeMo 2 or Megatron-Bridge, as keys: `trainer.strategy.tensor_model_parallel_size`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from napkin.errors import NapkinError, Refused
from napkin.inputs.launch.python.evaluated import Evaluation, Made
from napkin.inputs.launch.source import FileValue, LaunchFile, check_size
from napkin.inputs.launch.values import Open
from napkin.inputs.load import Document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PACKAGES = ("nemo", "megatron.bridge")
"""Packages whose recipes are read."""
BRIDGE = re.compile(r"_(pretrain|sft|peft|finetune|lora|dpo)(_\w+)?_(common|config)(_\w+)?$")
"""Functions that make Megatron-Bridge's recipes, and those that they begin with (recipes/common.py)."""
PLACES = {
    "default_finetune_recipe": (
        "model", "resume_path", "dir", "name", "num_nodes", "num_gpus_per_node", "packed_sequence", "tokenizer",
    ),
    "pretrain_recipe": ("dir", "name", "num_nodes", "num_gpus_per_node"),
    "finetune_recipe": ("dir", "name", "num_nodes", "num_gpus_per_node"),
}  # fmt: skip
"""NeMo's recipes → the names of their positional arguments (collections/llm/recipes)."""
_S = "trainer.strategy"
SETTERS = {
    "set_primary_perf_configs": {
        "num_nodes": "trainer.num_nodes", "num_gpus_per_node": "trainer.devices", "max_steps": "trainer.max_steps",
        "mbs": "data.micro_batch_size", "gbs": "data.global_batch_size",
        "tp_size": f"{_S}.tensor_model_parallel_size", "pp_size": f"{_S}.pipeline_model_parallel_size",
        "cp_size": f"{_S}.context_parallel_size", "ep_size": f"{_S}.expert_model_parallel_size",
        "vp_size": f"{_S}.virtual_pipeline_model_parallel_size", "etp_size": f"{_S}.expert_tensor_parallel_size",
    }
}  # fmt: skip
"""NeMo's function that sets what is tuned for speed (scripts/performance/helpers.py)."""
TARGET, ARGS, RECIPE = "_target_", "_args_", "recipe"
"""Last parts of keys: what an object is an instance of, and its positional arguments; and the key of the recipe."""
DEEPEST_KEY = 12


def recipe_of(tree: ast.Module, name: str, line: int = 0) -> LaunchFile | None:
    """Return the recipe of a program as keys, or None if it uses neither package's recipes. Raises NapkinError (2) if
    the file defines several and `line` selects none."""
    imported = dict(_imports(tree))
    if not any(module.split(".")[0] == "nemo" or module.startswith(PACKAGES[1]) for module in imported.values()):
        return None
    try:
        found = _found(tree, name, line, imported)
    except RecursionError:
        raise NapkinError(f"{name}: is nested too deeply", "give one recipe") from None
    if found is None:
        return None
    recipe, evaluation = found
    values: dict[str, FileValue] = {}
    lines: dict[tuple[object, ...], int] = {}
    for key, value, at in _leaves(recipe, (), 0):
        written = ".".join(key) or RECIPE
        values[written] = FileValue(written, value)
        lines[tuple(written.split("."))] = at
    check_size(len(values), name)
    source = LaunchFile(name, "python", values, Document(name, None, lines))
    source.unread = dict(evaluation.unread)
    parts = {id(one) for one in _parts(recipe, 0)}
    for one, call in evaluation.passed:
        if id(one) in parts:
            source.unread[call] = "is in another file, and may change the recipe"
    return source


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (name, the module that it is imported from)."""
    for one in ast.walk(tree):
        if isinstance(one, ast.ImportFrom):
            yield from ((part.asname or part.name, one.module or "") for part in one.names)
        elif isinstance(one, ast.Import):
            yield from ((part.asname or part.name.partition(".")[0], part.name) for part in one.names)


def _found(tree: ast.Module, name: str, line: int, imported: dict[str, str]) -> tuple[Made, Evaluation] | None:
    """Return the recipe that the program itself makes, else that of its one function, or of the one on a line."""
    whole = Evaluation(tree, name, PLACES, SETTERS)
    whole.run(tree.body, whole.names)
    made = [one for one in whole.made if _is_recipe(one, imported)]
    if not line and made:
        return _only(made, name), whole
    found: dict[str, tuple[list[Made], Evaluation]] = {}
    functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    constants: list[ast.stmt] = [one for one in tree.body if isinstance(one, (ast.Assign, ast.AnnAssign))]
    for function in functions.values():
        alone = Evaluation(tree, name, PLACES, SETTERS)
        alone.run(constants, alone.names)
        value = alone.called(function, [], {})
        recipes = [one for one in alone.made if _is_recipe(one, imported)]
        if recipes:
            found[function.name] = [value] if isinstance(value, Made) and value in recipes else recipes, alone
    if line and (made or found):
        chosen = [(one, whole) for one in made if one.line == line]
        for key, (recipes, alone) in found.items():
            if functions[key].lineno <= line <= (functions[key].end_lineno or line):
                chosen.append((_only(recipes, name), alone))
        if not chosen:
            raise NapkinError(f"{name}:{line}: no recipe is on this line", _choices(name, list(found), functions))
        return chosen[-1]
    inside = {key: ast.walk(ast.Module(functions[key].body, [])) for key in found}
    used = {one.id for key, nodes in inside.items() for one in nodes if isinstance(one, ast.Name) and one.id != key}
    roots = [key for key in found if key not in used]
    if len(roots) > 1:
        raise NapkinError(f"{name}: holds {len(roots)} recipes", _choices(name, roots, functions))
    return (_only(found[roots[0]][0], name), found[roots[0]][1]) if roots else None


def _only(made: list[Made], name: str) -> Made:
    """Return the one recipe that a program makes. Refused where a condition chooses it, or where there are several."""
    one = made[-1]
    if not all(each.sure for each in made):
        line = next(each.line for each in made if not each.sure)
        raise Refused(
            f"{name}:{line}: a condition that is set elsewhere chooses the recipe; napkin does not execute the file",
            "give the recipe's own file, or a program with one recipe",
        )
    if len(made) > 1:
        lines = ", ".join(f"--from {name}:{each.line}" for each in made[:3])
        raise NapkinError(f"{name}: makes {len(made)} recipes", f"name a line: {lines}")
    return one


def _choices(name: str, found: list[str], functions: dict[str, ast.FunctionDef]) -> str:
    """Return a hint that names the lines of a file's recipes."""
    first = [f"--from {name}:{functions[key].lineno} is {key}" for key in found[:3]]
    return "name a line: " + ", ".join(first)


def _is_recipe(one: Made, imported: dict[str, str]) -> bool:
    """Return whether an object is a recipe: made from nothing, or by a recipe of the package."""
    if one.word.endswith("_recipe") or ("trainer" in one.fields and "model" in one.fields):
        return True
    module = imported.get(one.target.partition(".")[0], "")
    ours = module.startswith(PACKAGES[1]) and "recipes" in module and ".utils" not in module
    return one.word == "ConfigContainer" or (ours and BRIDGE.search(f"_{one.word.lstrip('_')}") is not None)


def _parts(one: Made, depth: int) -> Iterator[Made]:
    """Yield an object and those in its fields that the file gives no class: what a recipe of another file made."""
    yield one
    for value, _ in one.fields.values():
        if isinstance(value, Made) and not value.target and depth < DEEPEST_KEY:
            yield from _parts(value, depth + 1)


def _leaves(one: Made, path: tuple[str, ...], line: int) -> Iterator[tuple[tuple[str, ...], Any, int]]:
    """Yield (path, value, line) of an object's fields."""
    if one.target:
        yield (*path, TARGET) if path else (), one.target, line
    if one.args and one.word not in PLACES:
        yield (*path, ARGS), _plain(list(one.args)), line
    for key, (value, at) in one.fields.items():
        if isinstance(value, Made) and len(path) < DEEPEST_KEY:
            yield from _leaves(value, (*path, key), at)
        else:
            yield (*path, key), _plain(value), at


def _plain(value: Any) -> Any:
    """Return a value that is no object; objects, and lists that hold some, are open."""
    if isinstance(value, Made):
        return Open(value.target)
    if isinstance(value, list) and any(isinstance(one, (Made, Open, list)) for one in value):
        return Open(", ".join(one.word if isinstance(one, Made) else str(getattr(one, "text", one)) for one in value))
    return value
