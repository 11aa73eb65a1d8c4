"""Recognize files of related programs that napkin does not read, and say what to use instead."""

from __future__ import annotations

import re
from collections.abc import Callable

from napkin.errors import Refused
from napkin.inputs.launch.source import LaunchFile
from napkin.record import record

ROLLOUTS = "give model, layout and task as options: napkin step MODEL --task grpo --gpus N --samples-per-prompt N …"
SIZES = "give model, batch, sequence and layout as options: napkin memory MODEL --gpus N --micro-batch N --seq N …"
TRAINING = "give the file that starts the training"
RECIPE = "give the configuration of a recipe that trains"
OTHER_WORK = re.compile(
    r"(?:^|[/_])(?:lm_)?(?:evaluate|eval|generate|generation|inference|convert|merge|analyze|preprocess|synthesize|export|doc_index)"
    r"(?!.*(?:train|tune))[^/]*\.py$"
)
"""Names of programs that do not train: generate_samples_gpt.py, run_text_generation_server.py."""
CONVERTS = (
    "target_tensor_model_parallel_size",
    "convert_checkpoint_from_megatron_to_transformers",
    "target_params_dtype",
)
"""Options of programs that convert checkpoints of Megatron."""
CONVERTER = re.compile(r"(?:^|/)(?:hf2m\w*|m\w*2hf|hf2te)[^/]*\.py$")
TITAN_TOKENS = ("num_tokens_per_microbatch_per_dp_rank", "num_tokens_per_train_step", "max_context_length")
"""Sizes of torchtitan since 9810191bb (February 2026), whose registry's functions set what a line omits."""
MEGATRON_TASKS = re.compile(r"(?:^|/)(?:tasks|tools)/(?:\w+/)*main\.py$")


@record
class Neighbor:
    """A kind of file that napkin recognizes but does not read.

    says  the kind in words      is_this  returns whether a file is of this kind      hint  what to give instead
    unclaimed_only  applies only to files that match no format, because its marks are weak
    """

    says: str
    is_this: Callable[[LaunchFile], bool]
    hint: str
    unclaimed_only: bool = False


def _holds(*keys: str) -> Callable[[LaunchFile], bool]:
    """Return a predicate that requires all of these keys; `a|b` accepts either."""
    return lambda source: all(source.has_any(*one.split("|")) for one in keys)


def _starts(*words: str) -> Callable[[LaunchFile], bool]:
    """Return a predicate for any of these words or path suffixes in a script's command."""
    return lambda source: any(one == word or one.endswith(f"/{word}") for one in source.command for word in words)


NEIGHBORS = (
    Neighbor(
        "Megatron-Bridge's launch line, which names a recipe that sets what the line omits",
        lambda source: "model_recipe_name" in source or ("recipe" in source and source.program == "run_recipe.py"),
        "give the recipe: --from FILE.py:LINE is the function on that line of a file of megatron/bridge/recipes",
    ),
    Neighbor(
        "another kind of ROLL configuration", _holds("student.strategy_args|actor_infer.strategy_args"), ROLLOUTS, True
    ),
    Neighbor(
        "AReaL's configuration without a trainer",
        _holds("experiment_name", "trial_name", "cluster|allocation_mode"),
        RECIPE,
        True,
    ),
    Neighbor(
        "open-instruct's older PPO, or its training with OLMo-core",
        lambda source: any(
            one.rsplit("/", 1)[-1].startswith(("ppo_vllm", "ppo_tune", "olmo_core")) and "open_instruct" in one
            for one in source.command
        ),
        SIZES,
    ),
    Neighbor(
        "DeepSpeed-Chat's train.py, which names its scripts by model size",
        _holds("step", "actor_model|reward_model"),
        SIZES,
        True,
    ),
    Neighbor("SpecForge's configuration of a draft model", _holds("model.target_model_path"), SIZES),
    Neighbor("another kind of NeMo AutoModel recipe", _holds("step_scheduler", "model._target_|recipe"), SIZES, True),
    Neighbor(
        "neuronx-distributed-training's configuration, for Trainium",
        _holds("distributed_strategy", "model_source|trainer"),
        SIZES,
    ),
    Neighbor(
        "another kind of xtuner or mmengine configuration",
        lambda source: source.syntax == "python" and any("xtuner" in one or "mmengine" in one for one in source.unread),
        SIZES,
        True,
    ),
    Neighbor(
        "fairseq's configuration or launch line",
        lambda source: (
            _starts("fairseq-train", "fairseq-hydra-train")(source) or _holds("optimization.max_update")(source)
        ),
        SIZES,
    ),
    Neighbor(
        "NeMo-Framework-Launcher's launch line, which names a recipe",
        lambda source: source.program == "main.py" and source.has_any("training", "fine_tuning", "peft"),
        "give the recipe: training=gpt3/5b is conf/training/gpt3/5b.yaml",
        True,
    ),
    Neighbor(
        "SageMaker HyperPod's launch line, which names a recipe",
        lambda source: source.program == "main.py" and "recipes" in source,
        "give the recipe: recipes=fine-tuning/llama/NAME is recipes_collection/recipes/fine-tuning/llama/NAME.yaml",
    ),
    Neighbor(
        "SageMaker HyperPod's recipe of another kind than its fine-tuning and verl",
        lambda source: (
            source.has_all("model.train_batch_size", "model.max_context_width")
            or str(source.plain("run.model_type") or "").startswith(("hyperpod_", "amazon.", "mtrl"))
        ),
        SIZES,
    ),
    Neighbor(
        "oumi's configuration of evaluation or inference, not of training",
        _holds("model.model_name", "engine|tasks|generation"),
        RECIPE,
        True,
    ),
    Neighbor(
        "torchtune's launch line, which names a configuration that torchtune holds",
        lambda source: _starts("tune")(source) and not str(source.plain("config") or "").endswith((".yaml", ".yml")),
        "`tune cp NAME FILE` writes it: give that file, and what the line overrides as options",
        True,
    ),
    Neighbor("torchforge's configuration", _holds("actors", "services", "trainer|policy|generator"), ROLLOUTS, True),
    Neighbor(
        "Modalities' configuration of other work than training",
        _holds("settings", "model_raw|app_state|train_dataloader"),
        SIZES,
        True,
    ),
    Neighbor("RLinf's configuration", _holds("runner.task_type", "actor", "rollout|cluster"), ROLLOUTS, True),
    Neighbor("Lingua's configuration of another model", _holds("distributed.fsdp_type", "model"), SIZES, True),
    Neighbor(
        "torchtitan's launch line, which names a function that makes its configuration",
        lambda source: (
            (source.module.endswith("torchtitan/train.py") and source.has_all("module", "config"))
            or source.has_any(*(f"training.{one}" for one in TITAN_TOKENS))
        ),
        SIZES,
    ),
    Neighbor(
        "LightningCLI's configuration of a program of one's own", _holds("model.class_path", "trainer"), SIZES, True
    ),
    Neighbor("align-anything's configuration", _holds("train_cfgs", "model_cfgs"), SIZES),
    Neighbor("ColossalAI's launch line", _starts("colossalai"), SIZES),
    Neighbor(
        "a configuration of inference or of merging, not of training",
        _holds("infer_backend|export_dir|max_new_tokens", "model_name_or_path|model"),
        TRAINING,
        unclaimed_only=True,
    ),
    Neighbor(
        "a configuration that merges or exports a model, not of training",
        lambda source: "export_dir" in source and not source.has_any("dataset", "do_train", "output_dir"),
        TRAINING,
    ),
    Neighbor("a configuration of evaluation, not of training", _holds("icl_tasks|eval_tasks"), TRAINING, True),
    Neighbor(
        "torchtune's configuration of evaluation, generation or quantization, not of training",
        lambda source: (
            source.has_all("model._component_")
            and source.has_any("max_new_tokens", "tasks", "quantizer", "prompt")
            and not source.has_any("optimizer", "loss", "epochs")
        ),
        RECIPE,
    ),
    Neighbor(
        "a launch line of evaluation, generation or conversion, not of training",
        lambda source: any(OTHER_WORK.search(one) for one in (*source.command, source.module) if one.endswith(".py")),
        RECIPE,
    ),
    Neighbor(
        "Megatron-LM's configuration of generation, not of training",
        _holds("num_tokens_to_generate|inference_dynamic_batching_buffer_size_gb", "num_layers|use_checkpoint_args"),
        RECIPE,
    ),
    Neighbor(
        "a launch line that converts a checkpoint, not of training",
        lambda source: source.has_any(*CONVERTS) or any(CONVERTER.search(one) for one in source.command),
        RECIPE,
    ),
    Neighbor(
        "a launch line of Megatron's tasks or tools, which evaluate, prepare data, or train a classifier",
        lambda source: MEGATRON_TASKS.search(source.script) is not None,
        RECIPE,
    ),
    Neighbor("a tokenizer's configuration", _holds("bos_token|tokenizer_class", "eos_token|unk_token"), TRAINING, True),
)


def refuse_neighbor(source: LaunchFile, told: bool) -> None:
    """Raise Refused (3) for a file of a related program that napkin does not read.

    told  whether a format matched the file; kinds with weak marks are then skipped
    """
    for one in NEIGHBORS:
        if not (told and one.unclaimed_only) and one.is_this(source):
            raise Refused(f"{source.name}: is {one.says}, which napkin does not read", one.hint)
