"""Recipes in Python of NeMo 2 and Megatron-Bridge: followed from their syntax, never run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from napkin.errors import NapkinError, Refused
from napkin.inputs.launch.read import read_launch, reading_of
from napkin.inputs.launch.syntax import source_of

MEGATRON = "param=bf16,grad=fp32,compute=bf16,state=fp32,master=fp32"
IMPORTS = """
import os
import nemo_run as run
from nemo import lightning as nl
from nemo.collections import llm
from nemo.collections.llm.recipes.finetune_default import default_finetune_recipe
from nemo.collections.llm.recipes.precision.mixed_precision import bf16_mixed
os.system("touch {touched}")
"""
FILE = (
    IMPORTS
    + """
def model():
    return run.Config(llm.LlamaModel, config=run.Config(llm.Llama31Config8B))

def trainer(tensor_parallelism=2, context_parallelism=1, num_nodes=1, num_gpus_per_node=8, max_steps=500):
    strategy = run.Config(nl.MegatronStrategy, tensor_model_parallel_size=tensor_parallelism,
        context_parallel_size=context_parallelism, sequence_parallel=True)
    return run.Config(nl.Trainer, devices=num_gpus_per_node, num_nodes=num_nodes, max_steps=max_steps,
        plugins=bf16_mixed(), strategy=strategy)

def pretrain_recipe(name="default", num_nodes=2, num_gpus_per_node=8, fast=False, fn=llm.pretrain):
    recipe = run.Partial(fn, model=model(), trainer=trainer(num_nodes=num_nodes, num_gpus_per_node=num_gpus_per_node),
        data=run.Config(llm.MockDataModule, seq_length=2 * 4096, global_batch_size=512, micro_batch_size=1),
        optim=distributed_fused_adam_with_cosine_annealing(max_lr=3e-4))
    if fast:
        recipe.trainer.plugins.grad_reduce_in_fp32 = False
    return recipe

def finetune_recipe(name="default", num_nodes=1, num_gpus_per_node=8, peft_scheme="lora", seq_length=None):
    if seq_length is None:
        seq_length = 2048
    recipe = default_finetune_recipe(model(), "a/checkpoint", None, name, num_nodes, num_gpus_per_node, False)
    if peft_scheme is None or peft_scheme.lower() == "none":
        recipe.trainer.strategy.tensor_model_parallel_size = 2
    elif peft_scheme.lower() in ["lora", "dora"]:
        recipe.peft = run.Config(PEFT_STR2CLS[peft_scheme.lower()])
        recipe.peft.dim = 8
        recipe.optim.config.use_distributed_optimizer = False
    else:
        raise ValueError(peft_scheme)
    recipe.data.seq_length = seq_length
    return recipe
"""
)


def read(text: str, line: str = "") -> dict[str, Any]:
    """Return option → value of a program, in which `line` begins the function that is meant."""
    at = 1 + text[: text.index(line)].count("\n") if line else 0
    found = reading_of(source_of(text, "recipe.py", at))
    return {name: one.value for name, one in found.inputs.items()}


def test_a_recipe_of_pretraining_is_followed_into_its_own_functions(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    found = read(FILE.format(touched=touched), "def pretrain_recipe")
    assert not touched.exists()
    asked = ("model", "task", "gpus", "tp", "pp", "cp", "sp", "seq", "micro-batch", "global-batch", "steps")
    assert [found[name] for name in asked] == ["llama3.1-8b", "pretrain", 16, 2, 1, 1, True, 8192, 1, 512, 500]
    assert (found["precision"], found["optimizer"], found["zero"]) == (MEGATRON, "adamw", 1)


def test_a_recipe_of_finetuning_has_the_defaults_that_it_begins_with() -> None:
    """NVIDIA/NeMo nemo/collections/llm/recipes/finetune_default.py: 1,000 steps of 128 samples, on no ranks of tp."""
    found = read(FILE, "def finetune_recipe")
    asked = ("task", "adapter", "lora-rank", "gpus", "tp", "seq", "global-batch", "steps", "zero")
    assert [found[name] for name in asked] == ["sft", "lora", 8, 8, 1, 2048, 128, 1000, 0]


def test_a_file_of_several_recipes_names_their_lines() -> None:
    with pytest.raises(NapkinError, match="holds 2 recipes") as error:
        read(FILE)
    assert "recipe.py:" in str(error.value.hint)
    assert "is finetune_recipe" in str(error.value.hint)


CALL = """
from nemo.collections import llm
import nemo_run as run

def configure(nodes: int = 1):
    recipe = llm.llama31_8b.pretrain_recipe(dir="/out", name="mine", num_nodes=nodes, num_gpus_per_node=8)
    recipe.trainer.strategy.tensor_model_parallel_size = 4
    recipe.trainer.max_steps = 100
    recipe.data.global_batch_size = 128
    return recipe

if __name__ == "__main__":
    run.run(configure(nodes=2), executor=run.LocalExecutor())
"""


def test_what_a_called_recipe_sets_is_asked() -> None:
    found = read(CALL)
    assert (found["model"], found["gpus"], found["tp"]) == ("llama3.1-8b", 16, 4)
    assert (found["steps"], found["global-batch"]) == (100, 128)
    assert [found[name] for name in ("pp", "cp", "seq", "micro-batch")] == [None] * 4


@pytest.mark.parametrize("size", ["num_layers", "hidden_size", "num_moe_experts"])
def test_another_size_is_refused(size: str) -> None:
    text = CALL.replace("    return recipe\n", f"    recipe.model.config.{size} = 4\n    return recipe\n")
    found = reading_of(source_of(text, "recipe.py"))
    assert [one.key for one in found.refused] == [f"model.config.{size}"]


@pytest.mark.parametrize("made", ["run.Config(llm.LlamaModel, small(1024))", "small(1024)", "MODELS[0]"])
def test_a_model_that_the_program_sets_is_not_the_recipe_s(made: str) -> None:
    assert read(CALL.replace("    return recipe\n", f"    recipe.model = {made}\n    return recipe\n"))["model"] is None


def test_a_value_behind_an_unknown_condition_is_open() -> None:
    text = CALL.replace("    return", "    if os.environ.get('X'):\n        recipe.trainer.max_steps = 7\n    return")
    assert read(text)["steps"] is None


def test_a_recipe_behind_an_unknown_condition_is_refused() -> None:
    text = CALL.replace(
        "    recipe = llm", "    if args.small:\n        recipe = llm.llama32_1b.pretrain_recipe()\n    recipe = llm"
    )
    with pytest.raises(Refused, match="chooses the recipe"):
        read(text)


def test_the_function_that_sets_what_is_tuned_is_followed() -> None:
    """NVIDIA/NeMo scripts/performance/helpers.py, set_primary_perf_configs: sequence parallel where tp is over 1."""
    text = CALL.replace(
        "    return recipe\n",
        "    recipe = set_primary_perf_configs(recipe, 'pre_train', num_nodes=8, num_gpus_per_node=4, mbs=2, gbs=256,\n"
        "        max_steps=50, tp_size=2, pp_size=4, cp_size=1, vp_size=5, ep_size=1, compute_dtype='bf16')\n"
        "    return recipe\n",
    )
    found = read(text)
    asked = ("gpus", "micro-batch", "global-batch", "steps", "tp", "pp", "cp", "vp", "sp")
    assert [found[name] for name in asked] == [32, 2, 256, 50, 2, 4, 1, 5, True]
    assert found["precision"] is None  # gradients are reduced in bf16 then, or in fp32


def test_a_function_of_another_file_that_takes_the_recipe_is_told() -> None:
    text = CALL.replace("    return recipe\n", "    recipe = tuned(recipe)\n    return recipe\n")
    found = reading_of(source_of(text, "recipe.py"))
    assert found.inputs["tp"].value == 4
    assert [one.key for one in found.not_modelled] == ["tuned(recipe)"]
    assert found.inputs["precision"].value is None


BRIDGE = """
from megatron.bridge import AutoBridge
from megatron.bridge.recipes.common import _peft_common, _pretrain_common
from megatron.bridge.recipes.utils.dataset_utils import default_peft_config

def llama3_8b_pretrain_2gpu_config():
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").get_model_config()
    cfg.model.tensor_model_parallel_size = 1
    cfg.model.pipeline_model_parallel_size = 1
    cfg.model.context_parallel_size = 2
    cfg.model.sequence_parallel = False
    cfg.model.seq_length = 8192
    cfg.model.recompute_granularity = "full"
    cfg.model.recompute_method = "uniform"
    cfg.model.recompute_num_layers = 1
    cfg.train.train_iters = 1168251
    cfg.train.global_batch_size = 512
    cfg.train.micro_batch_size = 1
    cfg.ddp.use_distributed_optimizer = True
    return cfg

def llama3_8b_peft_1gpu_config(peft_scheme="lora"):
    cfg = _peft_common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").get_model_config()
    peft_cfg = default_peft_config(peft_scheme)
    cfg.peft = peft_cfg
    if isinstance(peft_scheme, str) and peft_scheme.lower() in ["lora", "dora"]:
        peft_cfg.dim = 8
    return cfg
"""


def test_a_recipe_of_megatron_bridge_is_read() -> None:
    found = read(BRIDGE, "def llama3_8b_pretrain")
    asked = ("model", "task", "tp", "pp", "cp", "seq", "steps", "global-batch", "micro-batch", "recompute", "zero")
    assert [found[name] for name in asked] == ["llama3-8b", "pretrain", 1, 1, 2, 8192, 1168251, 512, 1, "full", 1]
    assert found["precision"] == MEGATRON  # recipes/common.py: bf16_mixed
    assert found["gpus"] is None  # the launcher's


def test_adapters_of_megatron_bridge_are_read() -> None:
    found = read(BRIDGE, "def llama3_8b_peft")
    assert (found["task"], found["adapter"], found["lora-rank"]) == ("sft", "lora", 8)


def test_a_program_that_changes_a_recipe_of_megatron_bridge_is_read(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "from megatron.bridge.recipes.llama import llama32_1b_pretrain_config\n"
        "from megatron.bridge.training.pretrain import pretrain\n"
        "def main() -> None:\n"
        "    config = llama32_1b_pretrain_config()\n"
        "    config.train.train_iters = 10\n"
        "    pretrain(config=config, forward_step_func=None)\n"
        'if __name__ == "__main__":\n'
        "    main()\n",
        encoding="utf-8",
    )
    found = {name: one.value for name, one in read_launch(str(path)).inputs.items()}
    assert (found["model"], found["task"], found["steps"], found["tp"]) == ("llama3.2-1b", "pretrain", 10, None)
