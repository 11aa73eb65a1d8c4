"""Which package may import which, and what a cold start loads. Read from the code's own imports."""

from __future__ import annotations

import ast
import functools
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT

SOURCE = os.path.join(ROOT, "src", "napkin")
ORDER = (
    ("errors", "record", "elementwise", "_tables"),
    ("units",),
    ("term",),
    ("formats",),
    ("options",),
    ("inputs",),
    ("autograd",),
    ("operations",),
    ("architectures",),
    ("training",),
    ("counting",),
    ("footprint", "timing"),
    ("evidence", "planning", "render"),
    ("bench", "rules"),
    ("commands",),
    ("cli",),
    ("api",),
    ("integrations",),
    ("__main__", "__init__"),
)
"""Packages from the bottom to the top. A package imports from lower lines only."""
LEVEL = {package: level for level, line in enumerate(ORDER) for package in line}
EVIDENCE = (
    ("figures", "software", "intervals"),
    ("rows",),
    ("prose", "rates"),
    ("predictions", "finetuning", "serving"),
    ("published", "fit"),
    ("validation",),
)
"""The packages of evidence/, in the same order."""
ONLY_IN = {
    "numpy": {"planning", "evidence", "bench"},
    "torch": {"bench"},
    "pydantic": {"inputs"},
    "yaml": {"inputs"},
    "rich": set(),
    "matplotlib": {"render"},
    "pandas": {"api"},
    "transformers": {"integrations"},
    "lightning": {"integrations"},
    "pytorch_lightning": {"integrations"},
    "typer": {"cli"},
}

AT_THE_TOP = {
    ".editorconfig", ".gitignore", ".pre-commit-config.yaml", ".pre-commit-hooks.yaml", "CHANGELOG.md", "CITATION.cff",
    "CONTRIBUTING.md", "LICENSE", "Makefile", "PKG-INFO", "README.md", "action.yml", "hardware_specs.yaml",
    "mkdocs.yml", "pyproject.toml",
}  # fmt: skip


def modules() -> Iterator[str]:
    for folder, _, files in os.walk(SOURCE):
        for file in files:
            if file.endswith(".py"):
                yield os.path.relpath(os.path.join(folder, file), SOURCE)


def package_of(path: str) -> str:
    return path.split(os.sep)[0].removesuffix(".py")


@functools.cache
def tree_of(path: str) -> ast.Module:
    """Return a file's syntax tree."""
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return ast.parse(file.read())


@functools.cache
def imports(path: str) -> tuple[str, ...]:
    """Return every module that a file imports anywhere, in functions and for annotations too; a name imported from a
    module counts as a module below it, for it may be one."""
    found: list[str] = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            found += (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
    return tuple(found)


def test_arrows_point_one_way() -> None:
    assert [f"{path} imports {name}" for path in modules() for name in imports(path) if not may(path, name)] == []


def may(path: str, name: str) -> bool:
    """Whether a file may import a module."""
    package, parts = package_of(path), name.split(".")
    if parts[0] != "napkin":
        return parts[0] not in ONLY_IN or package in ONLY_IN[parts[0]]
    target = parts[1] if len(parts) > 1 else "__init__"
    return name == "napkin" or target == "__version__" or target == package or LEVEL[target] < LEVEL[package]


def test_arrows_of_evidence_point_one_way() -> None:
    level = {package: level for level, line in enumerate(EVIDENCE) for package in line}
    folders = {name.split(".")[2] for name in arrows() if name.startswith("napkin.evidence.")}
    assert folders == set(level)
    wrong = [
        f"{name} imports {found}"
        for name, ahead in arrows().items()
        for found in ahead
        if name.startswith("napkin.evidence.") and found.startswith("napkin.evidence.")
        if (above := found.split(".")[2]) != (own := name.split(".")[2]) and level[above] >= level[own]
    ]
    assert wrong == []


def module_of(path: str) -> str:
    return "napkin." + path.removesuffix(".py").replace(os.sep, ".").removesuffix(".__init__")


def arrows() -> dict[str, set[str]]:
    """Every module of the package, and those that it imports anywhere: in functions and for annotations too."""
    known = {module_of(path): path for path in modules()}
    return {name: {found for found in imports(path) if found in known} - {name} for name, path in known.items()}


def on_a_circle(arrows: dict[str, set[str]]) -> dict[str, set[str]]:
    """The modules left when those that import none of the others are taken away again and again."""
    left = dict(arrows)
    while free := {name for name, ahead in left.items() if not ahead & left.keys()}:
        left = {name: ahead for name, ahead in left.items() if name not in free}
    return left


def test_what_families_share_does_not_know_a_family() -> None:
    shared = {name: found for name, found in arrows().items() if name.startswith("napkin.architectures")}
    for name, found in shared.items():
        if ".families" not in name:
            assert not [one for one in found if ".families" in one], name


def test_no_module_imports_itself_on_a_way_round() -> None:
    assert sorted(on_a_circle(arrows())) == []


@pytest.mark.parametrize("path", sorted(path for path in modules() if path.endswith("__init__.py") and os.sep in path))
def test_what_a_package_names_is_there(path: str) -> None:
    """A package's docstring says where to begin."""
    said = ast.get_docstring(tree_of(path)) or ""
    named = [word.strip(",.;:()`") for word in said.split()]
    named = [word for word in named if word.endswith((".py", "/")) and "://" not in word]
    folders = [os.path.dirname(path), os.path.dirname(os.path.dirname(path)), "", ROOT]
    for word in named:
        assert any(os.path.exists(os.path.join(SOURCE, folder, word)) for folder in folders), word


def test_the_checks_above_can_fail() -> None:
    """Every package has its line, and the arrows are there to be seen."""
    assert {package_of(path) for path in modules()} == set(LEVEL)
    assert not may("operations/base.py", "napkin.timing.step")
    assert not may("timing/step.py", "numpy")
    assert may("planning/grid.py", "numpy")
    assert {"napkin.operations.base", "napkin.record"} <= arrows()["napkin.architectures.blocks"]
    assert set(on_a_circle({"a": {"b"}, "b": {"a"}, "c": {"a"}, "d": set()})) == {"a", "b", "c"}
    late = "napkin.inputs.hardware_file"  # imported inside a function
    assert late in arrows()["napkin.commands.question.machine"]


@pytest.mark.slow
def test_no_two_classes_have_one_name() -> None:
    """A name says what a class is without its module. Private classes are their module's own."""
    where: dict[str, list[str]] = {}
    for path in modules():
        for name in {node.name for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)}:
            where.setdefault(name, []).append(path)
    assert {name: paths for name, paths in where.items() if len(paths) > 1 and not name.startswith("_")} == {}


def kinds_of_operation() -> set[str]:
    """Return the names of all classes of operations."""
    for path in modules():
        if package_of(path) == "operations":
            importlib.import_module(module_of(path))
    from napkin.operations.base import Operation

    found: list[type] = [Operation]
    for kind in found:
        found += kind.__subclasses__()
    return {kind.__name__ for kind in found}


def test_no_one_asks_which_kind_of_operation_it_has() -> None:
    """An operation states everything about itself; what others do with it they ask of its methods."""
    kinds = kinds_of_operation()
    assert {"Matmul", "AttentionCore", "RelativeScores"} <= kinds
    asks = []
    for path in modules():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                named = {one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name)}
                asks += [f"{path}:{node.lineno}: {name}" for name in named & kinds]
    assert asks == []


FORMULAS = ("autograd", "operations", "architectures", "counting", "footprint", "timing", "planning")
"""Packages whose formulas know no model, framework or library by its name."""
CONVENTIONS = "counting/conventions.py"
"""Ways of counting FLOPs, which have names of their own; two are those of their frameworks."""


def compared_words(path: str) -> set[str]:
    """Return the texts that a file compares something with, written there or in a tuple of the module."""
    listed: dict[str, set[str]] = {}
    for line in tree_of(path).body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            listed[line.targets[0].id] = words_in(line.value)
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Compare):
            found |= words_in(node)
            found |= {word for one in ast.walk(node) if isinstance(one, ast.Name) for word in listed.get(one.id, ())}
    return found


def words_in(node: ast.AST) -> set[str]:
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


READERS = tuple(
    f"evidence/{name}" for name in ("rows", "finetuning", "fit", "predictions", "rates", "serving", "validation")
)
"""The same of what reads published rows, apart from their words, and predicts them."""


def test_no_formula_asks_for_the_name_of_a_model_or_a_library() -> None:
    """What a model or a library does differently is a field of its record."""
    from napkin._tables import architectures
    from napkin.evidence.software.stacks import STACKS
    from napkin.training.frameworks import FRAMEWORKS
    from napkin.training.trainers import TRAINERS

    names = {*architectures.MODULES, *STACKS, *FRAMEWORKS, *TRAINERS} - {"none"}
    asked = [
        f"{path}: {word}"
        for path in modules()
        if (package_of(path) in FORMULAS or os.path.dirname(path).replace(os.sep, "/") in READERS)
        and not path.startswith("architectures/families")
        and path != CONVENTIONS
        for word in sorted(compared_words(path) & names)
    ]
    assert asked == []
    assert {"megatron", "nanogpt"} <= compared_words(CONVENTIONS)  # the check can fail


READS = ("run", "read", "record", "check", "note")
"""How the functions of commands/ begin that see the options."""


@pytest.mark.parametrize("path", sorted(path for path in modules() if package_of(path) == "commands"))
def test_options_are_read_at_the_door_only(path: str) -> None:
    """A function that takes the inputs reads or notes them; what answers takes a typed record of the question."""
    if path.endswith(("command.py", "commands/inputs.py")):
        return
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef):
            takes = {arg.annotation.id for arg in node.args.args if isinstance(arg.annotation, ast.Name)}
            assert "Inputs" not in takes or node.name.lstrip("_").startswith(READS), f"{path}: {node.name}"


LIGHT = "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.5"
HEAVY = (
    "torch", "numpy", "rich", "pydantic", "matplotlib", "yaml", "json", "importlib.metadata", "importlib.resources",
    "logging", "typer", "click", "typing", "dataclasses", "enum", "pathlib", "inspect", "re",
)  # fmt: skip


def loaded_by(line: str) -> list[str]:
    code = (
        "import sys; before = set(sys.modules)\n"
        "import io, contextlib\nfrom napkin.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):\n"
        f"    assert main({line.split()!r}) == 0\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


def test_what_a_cold_train_time_loads() -> None:
    names = loaded_by(LIGHT)
    assert not [n for n in names if n.split(".")[0] in HEAVY or n in HEAVY]
    assert {n for n in names if n.startswith("napkin.")} == {
        "napkin._tables",
        "napkin._tables.commands",
        "napkin._tables.hardware",
        "napkin.cli",
        "napkin.commands.command",
        "napkin.commands.question.goodput",
        "napkin.commands.inputs",
        "napkin.commands.question",
        "napkin.commands.question.machine",
        "napkin.cli.other_tools",
        "napkin.cli.reader",
        "napkin.cli.words",
        "napkin.commands.screens",
        "napkin.commands.screens.train_time",
        "napkin.commands.train_time",
        "napkin.commands.uses",
        "napkin.commands.train_time.question",
        "napkin.counting",
        "napkin.counting.six_n",
        "napkin.elementwise",
        "napkin.errors",
        "napkin.inputs",
        "napkin.inputs.hardware",
        "napkin.inputs.peaks",
        "napkin.options",
        "napkin.options.command_line",
        "napkin.options.comparing",
        "napkin.options.question",
        "napkin.options.output",
        "napkin.options.layout",
        "napkin.options.machine",
        "napkin.options.model",
        "napkin.options.option",
        "napkin.options.parsers",
        "napkin.options.registry",
        "napkin.options.rollout",
        "napkin.options.training",
        "napkin.commands",
        "napkin.commands.signature",
        "napkin.commands.train_time.read",
        "napkin.timing",
        "napkin.timing.goodput",
        "napkin.timing.time",
        "napkin.record",
        "napkin.render",
        "napkin.render.answer",
        "napkin.render.page",
        "napkin.render.columns",
        "napkin.render.paint",
        "napkin.render.figures",
        "napkin.render.screen",
        "napkin.render.terminal",
        "napkin.term",
        "napkin.units",
        "napkin.units.algebra",
        "napkin.units.numbers",
        "napkin.units.printing",
        "napkin.units.quantities",
    }


@pytest.mark.parametrize(
    "line",
    [
        "params llama3-8b",
        "memory llama3-8b --gpus 8 --hardware h100 --zero 3 --seq 4096",
        "memory llama3-8b --gpus 8 --hardware h100",  # searches what would fit
        "step llama3-8b --gpus 8 --hardware h100 --zero 3",
        "train-time --params 70B --tokens 15T --gpus 1024 --hardware h100",  # fits published runs
    ],
)
def test_an_everyday_answer_loads_nothing_heavy(line: str) -> None:
    assert not [n for n in loaded_by(line) if n.split(".")[0] in HEAVY or n in HEAVY]


ADAPTERS = {"operations.adapters.as_operations", "operations.adapters.targets"}
EXPERTS = {"operations.experts", "operations.expert_kernels", "operations.router"}
OTHER_NETWORKS = {
    "architectures.idle", "operations.attention.eager", "operations.attention.band", "operations.hyper_connections",
    "operations.images", "operations.learned",
}  # fmt: skip
OTHER_QUESTIONS = {
    "commands.rollout", "commands.rollout.question", "footprint.offload", "footprint.other_models", "inputs.launch",
    "inputs.yaml_file", "planning.fewest", "planning.largest", "training.trainers",
}  # fmt: skip
UNASKED = ADAPTERS | EXPERTS | OTHER_NETWORKS | OTHER_QUESTIONS
"""What a dense language model without adapters, trained alone on a layout that is given, does not need."""


@pytest.mark.parametrize(
    ("line", "more"),
    [
        ("params llama3-8b", {"footprint", "operations.trained", "training.precision", "training.setup"}),
        ("flops llama3-8b", {"footprint", "operations.trained", "training.optimizer", "training.setup"}),
        ("memory llama3-8b --gpus 8 --hardware h100 --zero 3", {"operations.trained", "timing"}),
        ("step llama3-8b --gpus 8 --hardware h100 --zero 3", set()),
    ],
)
def test_reading_a_dense_model_loads_nothing_of_other_questions(line: str, more: set[str]) -> None:
    assert sorted({name.removeprefix("napkin.") for name in loaded_by(line)} & (UNASKED | more)) == []


def test_what_others_load_are_modules() -> None:
    known = {module_of(path).removeprefix("napkin.") for path in modules()}
    assert sorted(UNASKED - known) == []


@pytest.mark.parametrize("command", ["bench", "plan", "validate", "memory"])
def test_help_loads_nothing_heavy(command: str) -> None:
    code = (
        "import sys, io, contextlib\nfrom napkin.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):\n"
        f"    main(['{command}', '--help'])\n"
        "print(*{'torch', 'numpy', 'rich', 'pydantic', 'matplotlib', 'yaml'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


def test_the_top_folder_holds_the_files_of_a_project_alone() -> None:
    tracked = subprocess.run(["git", "ls-files", "--full-name", ":/"], cwd=ROOT, capture_output=True, text=True)
    names = tracked.stdout.split("\n") if tracked.returncode == 0 else os.listdir(ROOT)  # a source distribution
    top = {name for name in names if name and "/" not in name and os.path.isfile(os.path.join(ROOT, name))}
    assert sorted(top - AT_THE_TOP) == []
