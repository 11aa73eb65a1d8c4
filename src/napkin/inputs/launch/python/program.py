"""Find the calls of a Python program that set its trainer's arguments, model, adapters and precision."""

from __future__ import annotations

import ast

from napkin.errors import NapkinError, Refused
from napkin.inputs.launch.python.calls import (
    CONFIGS,
    ELSEWHERE,
    FAST,
    OF_LORA,
    OF_MODEL,
    TRAINERS,
    Call,
    TrainingProgram,
)
from napkin.inputs.launch.python.names import Values, called, owner, shown
from napkin.inputs.launch.source import LaunchFile, check_size
from napkin.inputs.launch.values import Open
from napkin.inputs.load import Document

MOST_LISTED = 6


def trainer_of(program: TrainingProgram, line: int) -> Call | None:
    """Return a program's trainer, or the one on the line of `FILE:LINE`, and drop the calls of other trainers.

    None if the program constructs none. Raises Refused (3) if it constructs several and no line selects one.
    """
    trainers = program.of_kind(TRAINERS)
    listed = ", ".join(f"{called(one.node)} on line {one.node.lineno}" for one in trainers[:MOST_LISTED])
    listed += ", …" if len(trainers) > MOST_LISTED else ""
    if not line:
        if len(trainers) > 1:
            hint = f"select one by its line: --from {program.name}:{trainers[-1].node.lineno}"
            raise Refused(f"{program.name}: constructs {len(trainers)} trainers: {listed}", hint)
        return trainers[0] if trainers else None
    found = [one for one in trainers if one.node.lineno <= line <= (one.node.end_lineno or line)]
    if len(found) != 1:
        raise NapkinError(
            f"{program.name}:{line}: {'several trainers are' if found else 'no trainer is'} made on this line",
            f"trainers: {listed}" if trainers else f"omit the line: --from {program.name}",
        )
    if len(trainers) > 1:
        every = program.of_kind(CONFIGS)
        program.calls = _calls_of(program, found[0], [one for one in trainers if one is not found[0]])
        program.shared = {name for one in every if one not in program.calls for name in one.targets}
    return found[0]


def _calls_of(program: TrainingProgram, trainer: Call, others: list[Call]) -> list[Call]:
    """Return the calls that a trainer may depend on.

    Excludes calls in functions that construct only other trainers, calls inside other trainers' arguments, later calls,
    calls whose result is reassigned first, and constructors of another trainer type's arguments.
    """
    elsewhere = {id(one.names) for one in others} - {id(trainer.names)}
    inside = {id(node) for one in others for node in ast.walk(one.node)}
    last = trainer.node.end_lineno or trainer.node.lineno
    calls = [one for one in program.calls if id(one.node) not in inside]
    calls = [one for one in calls if not (one.names is trainer.names and one.node.lineno > last)]
    calls = [one for one in calls if one.names is trainer.names or not one.names or id(one.names) not in elsewhere]
    calls = [one for one in calls if not any(_replaces(later, one) for later in calls)]
    kind = TRAINERS[program.kind(trainer)]
    configs = [one for one in calls if program.kind(one) in CONFIGS]
    mine = [one for one in configs if CONFIGS[program.kind(one)] == kind]
    return [one for one in calls if one in mine or one not in configs or not mine]


def _replaces(later: Call, call: Call) -> bool:
    """Return whether a later call always reassigns the name that a call assigns or modifies.

    A reassignment from the name itself does not count.
    """
    if later.names is not call.names or not later.sure or later.node.lineno <= call.node.lineno:
        return False
    names = {*call.targets, *([owner(call.node)] if owner(call.node) else [])}
    used = {one.id for one in ast.walk(later.node) if isinstance(one, ast.Name)}
    return any(name in later.targets and name not in used for name in names)


SKIPPED = (
    "model args tokenizer processing_class train_dataset eval_dataset data_collator formatting_func callbacks "
    "compute_metrics peft_config reward_processing_classes preprocess_logits_for_metrics model_init image_processor "
    "label_names environment_factory tools"
)
"""Trainer arguments that are objects; either read where they are constructed, or irrelevant."""
ADAPTERS = {f"{kind}Config": kind for kind in (
    "AdaLora", "Vera", "IA3", "LoHa", "LoKr", "OFT", "BOFT", "PrefixTuning", "PromptTuning", "PromptEncoder",
    "FourierFT", "LNTuning", "VBLoRA", "Bone", "Miss", "XLora", "HRA", "Poly", "CPT", "RandLora", "Shira")}  # fmt: skip
"""peft's configuration classes other than LoraConfig → display name."""
OF_PROMPTS = tuple(f"{kind}Config" for kind in ("PromptTuning", "PromptEncoder", "PrefixTuning"))
"""Those whose arguments are keys of their own names."""
QUANTIZED, MODEL_CONFIG = "quantization_config", "ModelConfig"


def program_of(tree: ast.Module, name: str, line: int = 0) -> LaunchFile | None:
    """Return a program's training setup as keys of its trainer's arguments, or None if it constructs no trainer.

    Raises Refused (3) if it constructs several and `line` selects none, or takes its settings from elsewhere.
    """
    program = TrainingProgram(tree, name)
    trainer = trainer_of(program, line)
    configs = program.of_kind(CONFIGS)
    if trainer is None and not (configs and any(called(one.node) == "train" for one in program.calls)):
        return None  # inference programs and argument parsers use these too
    mine = _configs(program, trainer, configs)
    if not mine:
        raise Refused(
            f"{name}:{trainer.node.lineno if trainer else 1}: the trainer's arguments are not written in the file",
            "give the launch line that sets them, or " + ELSEWHERE,
        )
    for one in mine:
        program.take(one)
    _take_writes(program, tree, mine)
    for one in program.calls:
        if called(one.node) == MODEL_CONFIG:
            program.take(one)
    if trainer is not None:
        _take_trainer(program, trainer)
    fast = _take_model(program, trainer)
    _take_adapters(program, trainer)
    _take_formats(program)
    _take_checkpointing(program)
    _take_frozen(program, tree)
    kind = TRAINERS[program.kind(trainer)] if trainer is not None else CONFIGS[program.kind(mine[0])]
    kind = kind or next((CONFIGS[program.kind(one)] for one in mine), "")
    program.add("trainer", called((trainer or mine[0]).node), kind or "transformers", (trainer or mine[0]).node.lineno)
    program.add("arguments", called(mine[0].node), CONFIGS[program.kind(mine[0])], mine[0].node.lineno)
    check_size(len(program.values), name)
    source = LaunchFile(name, "python", program.values, Document(name, None, program.lines))
    source.command = (*(("unsloth",) if fast else ()), *(("trl", kind) if kind else ("transformers",)))
    for word, base in program.bases.items():
        if trainer is not None and called(trainer.node) == word:
            source.unread[f"class {word}({base})"] = "a trainer subclass whose overrides are not read"
    return source


def _bound(program: TrainingProgram, node: ast.expr | None, among: list[Call]) -> list[Call]:
    """Return the calls that an expression is, or that its name is assigned."""
    if isinstance(node, ast.Name):
        return [one for one in among if node.id in one.targets]
    return [one for one in among if node is not None and one.node in ast.walk(node)]


def _argument(call: Call, name: str, at: int | None = None) -> ast.expr | None:
    """Return an argument by keyword or position."""
    found = next((one.value for one in call.node.keywords if one.arg == name), None)
    if found is None and at is not None and len(call.node.args) > at:
        return call.node.args[at]
    return found


def _configs(program: TrainingProgram, trainer: Call | None, configs: list[Call]) -> list[Call]:
    """Return the calls that construct a trainer's arguments: the ones passed to it, else the program's only ones."""
    if trainer is not None:
        given = _bound(program, _argument(trainer, "args", 1), configs)
        if given:
            return given
    return configs


def _take_writes(program: TrainingProgram, tree: ast.Module, configs: list[Call]) -> None:
    """Add attributes that are assigned after construction: `training_args.max_steps = 100`, or by setattr."""
    names = {name: one for one in configs for name in one.targets}
    for one in ast.walk(tree):
        for name, key, node in _writes(one):
            if name not in names:
                continue
            known = Values((names[name].outer, names[name].names))
            attribute, value = known.of(key), known.of(node)
            if not isinstance(attribute, str):
                raise Refused(f"{program.name}:{node.lineno}: {name} takes settings by setattr under names", ELSEWHERE)
            if name in program.shared:
                value = Open("the name is shared with another trainer's arguments")
            program.add(attribute, f"{name}.{attribute}", value, node.lineno)


def _writes(node: ast.AST) -> list[tuple[str, ast.expr, ast.expr]]:
    """Return the attributes that a node sets on names: the name, the attribute's and the value."""
    if isinstance(node, ast.Assign):
        targets = [one for one in node.targets if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)]
        return [
            (one.value.id, ast.Constant(one.attr), node.value) for one in targets if isinstance(one.value, ast.Name)
        ]
    if isinstance(node, ast.Call) and called(node) == "setattr" and len(node.args) == 3:
        owned, key, value = node.args
        return [(owned.id, key, value)] if isinstance(owned, ast.Name) else []
    return []


def _take_trainer(program: TrainingProgram, trainer: Call) -> None:
    """Add settings passed directly to the trainer, as older TRL allowed: max_seq_length, packing."""
    values = Values((trainer.outer, trainer.names))
    model = _argument(trainer, "model", 0)
    written = values.of(model) if model is not None else None
    if isinstance(written, str):
        program.add("model_name_or_path", f"{trainer.where}.model", written, trainer.node.lineno)
    for one in trainer.node.keywords:
        if one.arg == "optimizers":
            program.add("optim", f"{trainer.where}.optimizers", Open(shown(one.value)), trainer.node.lineno)
        elif one.arg is not None and one.arg not in SKIPPED.split():
            value = values.of(one.value)
            program.add(one.arg, f"{trainer.where}.{one.arg}", value, one.value.lineno, tuple(values.conditions))


def _loads_model(call: Call) -> bool:
    """Return whether a call loads a model rather than a tokenizer, processor, configuration or adapter."""
    made = owner(call.node)
    others = ("Tokenizer", "Processor", "Config", "Extractor", "PeftModel", "Pipeline", "Engine")
    return called(call.node) == "from_pretrained" and bool(made) and not any(word in made for word in others)


def _take_model(program: TrainingProgram, trainer: Call | None) -> bool:
    """Add the trained model and how it is loaded. Return whether unsloth loads it."""
    every = [one for one in program.calls if _loads_model(one) and owner(one.node)[:1].isupper()]
    if trainer is not None:
        given = _bound(program, _argument(trainer, "model", 0), every)
        before = [one for one in given if one.node.lineno <= trainer.node.lineno]
        every = before or given or every
    for one in every:
        made = owner(one.node)
        if one.node.args:
            values = Values((one.outer, one.names))
            value = values.of(one.node.args[0])
            taken = tuple(values.conditions)
            program.add("model_name_or_path", f"{made}.from_pretrained", value, one.node.lineno, taken)
        words = dict(OF_MODEL)
        named = Call(one.node, f"{made}.from_pretrained", one.names, one.outer, one.sure, one.targets)
        program.take(named, words)
        program.add("model_class", made, made, one.node.lineno)
    if not every and "model_name_or_path" not in program.values:  # TRL's ModelConfig does not name one either
        program.add("model_name_or_path", "model", Open("created by the program"), 1)
    return any(owner(one.node) in FAST for one in every)


def _take_adapters(program: TrainingProgram, trainer: Call | None) -> None:
    """Add LoRA from unsloth's get_peft_model, or LoRA or virtual tokens from a config passed to a trainer or
    get_peft_model."""
    fast = [one for one in program.calls if called(one.node) == "get_peft_model" and owner(one.node) in FAST]
    for one in fast:
        program.take(Call(one.node, "get_peft_model", one.names, one.outer, one.sure), OF_LORA)
        program.add("use_peft", "get_peft_model", True if one.sure else Open("a branch"), one.node.lineno)
    for one in program.of_kind(ADAPTERS):
        if program.is_idle(one):
            continue
        program.add("peft_class", called(one.node), ADAPTERS[called(one.node)], one.node.lineno)
    configs = [one for one in program.calls if called(one.node) == "LoraConfig" and not program.is_idle(one)]
    given = [_argument(trainer, "peft_config")] if trainer is not None else []
    for word, at in (("get_peft_model", 1), ("add_adapter", 0)):
        takers = [one for one in program.calls if called(one.node) == word and one not in fast]
        given += [_argument(one, "peft_config", at) for one in takers]
    stated = [one for one in given if one is not None and not (isinstance(one, ast.Constant) and one.value is None)]
    if "use_peft" in program.values or any(called(one.node) == MODEL_CONFIG for one in program.calls):
        stated = [one for one in stated if not (isinstance(one, ast.Call) and called(one) == "get_peft_config")]
    prompts = [one for one in program.calls if called(one.node) in OF_PROMPTS and not program.is_idle(one)]
    configs += prompts
    used = [call for one in stated for call in _bound(program, one, configs)]
    for one in used or configs:
        prefix = "" if one in prompts else "peft_config."
        program.take(Call(one.node, called(one.node), one.names, one.outer, one.sure), OF_LORA, prefix)
    sure = used and all(one.sure for one in used) and not any(isinstance(one, ast.IfExp) for one in stated)
    if stated or configs:
        node = stated[0] if stated else configs[0].node
        program.add("use_peft", "peft_config", True if sure else Open(shown(node)), node.lineno)


def _take_formats(program: TrainingProgram) -> None:
    """Add the BitsAndBytesConfig that the model is loaded with; mark it unread if it is not written out."""
    configs = [one for one in program.calls if called(one.node) == "BitsAndBytesConfig" and not program.is_idle(one)]
    stated = program.values.pop(QUANTIZED, None)
    for one in configs:
        program.take(one)
    if not configs and stated is not None and stated.value is not None:
        program.add("load_in_4bit", stated.key, Open(str(stated.value)), 1)


def _take_frozen(program: TrainingProgram, tree: ast.Module) -> None:
    """Record that a program freezes parameters itself: `requires_grad_(False)`, `requires_grad = False`."""
    for one in ast.walk(tree):
        if isinstance(one, ast.Call) and called(one) == "requires_grad_":
            off = bool(one.args) and isinstance(one.args[0], ast.Constant) and one.args[0].value is False
        elif isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant) and one.value.value is False:
            off = any(isinstance(each, ast.Attribute) and each.attr == "requires_grad" for each in one.targets)
        else:
            continue
        if off:
            program.add("requires_grad", "requires_grad", False, one.lineno)


def _take_checkpointing(program: TrainingProgram) -> None:
    """Record that a program enables gradient checkpointing itself."""
    for one in program.calls:
        word = called(one.node)
        if word == "gradient_checkpointing_enable":
            program.add("gradient_checkpointing", word, True if one.sure else Open("a branch"), one.node.lineno)
        elif word == "prepare_model_for_kbit_training" and owner(one.node) not in FAST:
            on = _argument(one, "use_gradient_checkpointing", 1)
            value = Values((one.outer, one.names)).of(on) if on is not None else True
            program.add("gradient_checkpointing", word, value if one.sure else Open("a branch"), one.node.lineno)
