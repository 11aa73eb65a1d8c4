"""Launch scripts that take arguments: they are read as they run without any, and what arguments add is asked."""

from __future__ import annotations

import pytest

from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of

SIZES = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --global-batch-size 64"


def script(before: str, options: str) -> Reading:
    """Return the reading of a script that starts Megatron's pretraining."""
    return reading_of(source_of(f"{before}\ntorchrun pretrain_gpt.py {SIZES} {options}\n", "train.sh"))


def said(reading: Reading, option: str) -> tuple[object, str, str]:
    """Return an option's value, where it is from, and the keys that are named."""
    one = reading.inputs[option]
    return one.value, one.origin, one.where


@pytest.mark.parametrize(
    "before",
    [
        'MBS=4\nif [ -n "${2}" ]; then\n  MBS=$2;\nfi',
        'MBS=$2\nif [ "$MBS" == "" ]; then\n  MBS=4\nfi',
        'if [[ ! -z "$2" ]]; then\n  MBS=$2\nelse\n  MBS=4\nfi',
        'if [ -z "$2" ]; then\n  MBS=4\nelif [ "$2" = big ]; then\n  MBS=64\nelse\n  MBS=$2\nfi',
    ],
)
def test_an_argument_that_is_left_out_leaves_the_scripts_own_value(before: str) -> None:
    reading = script(before, "--micro-batch-size ${MBS}")
    assert said(reading, "micro-batch") == (4, "default", "$2, --micro-batch-size")
    assert any(one.key == "$2" and "assumed unset" in one.why for one in reading.not_modelled)


def test_arguments_that_a_loop_reads_are_not_given() -> None:
    loop = 'TP=2\nwhile [[ $# -gt 0 ]]; do\n  case $1 in\n  --tp)\n    TP="$2"; shift 2;;\n  *) break;;\n  esac\ndone'
    reading = script(loop, "--micro-batch-size 1 --tensor-model-parallel-size $TP")
    assert said(reading, "tp") == (2, "default", "TP, --tensor-model-parallel-size")


def test_a_variable_that_is_set_outside_is_not_given() -> None:
    reading = script('if [ -z "$LENGTH_OF_RUN" ]; then LENGTH_OF_RUN=300; fi', "--train-iters $LENGTH_OF_RUN")
    assert said(reading, "steps") == (300, "default", "LENGTH_OF_RUN, --train-iters")


def test_options_of_an_undecided_branch_are_required_from_the_user() -> None:
    text = """KIND=$1
if [ $KIND = bf16 ]; then
  NUMBERS="--bf16"
else
  NUMBERS="--fp16"
fi
if [ $3 = true ]; then
  SHARD=" --use-distributed-optimizer"
else
  SHARD=" "
fi
"""
    reading = script(text, "--micro-batch-size 2 ${NUMBERS} --train-iters 10 ${SHARD}")
    assert reading.value_of("precision") is None  # neither fp32, which no option at all would mean, nor either branch
    assert reading.value_of("zero") is None
    assert reading.value_of("micro-batch") == 2  # what follows a value in another variable is none of it
    assert reading.value_of("steps") == 10


def test_options_that_an_undecided_branch_adds_leave_those_before_as_they_are() -> None:
    adds = 'ARGS="--micro-batch-size 2 --bf16"\nif [ $HOST = big ]; then ARGS="$ARGS --sequence-parallel"; fi'
    listed = "ARGS=(--micro-batch-size 2 --bf16)\nif [ $HOST = big ]; then ARGS+=(--sequence-parallel); fi"
    for before, after in ((adds, "$ARGS"), (listed, "${ARGS[@]}")):
        reading = script(before, f"{after} --tensor-model-parallel-size 2")
        assert reading.value_of("micro-batch") == 2
        assert reading.value_of("precision") is not None
        assert "sp" in reading.inputs
        assert reading.value_of("sp") is None


def test_a_command_that_takes_arguments_to_start_is_read_last() -> None:
    text = f"""if [ -n "$1" ]; then
  torchrun pretrain_gpt.py {SIZES} --micro-batch-size 8 --train-iters 5 --bf16
fi
torchrun pretrain_gpt.py {SIZES} --micro-batch-size 2
"""
    assert reading_of(source_of(text, "train.sh")).value_of("micro-batch") == 2


def test_variables_without_a_value_are_said() -> None:
    """A word of its own behind an option's value may hold any option; one that follows a name is its value."""
    text = (
        "accelerate launch --num_processes 4 $ACCELERATE train.py --model_name_or_path Qwen/Qwen2.5-7B \\\n"
        "  --per_device_train_batch_size 2 $EXTRA_ARGS --num_train_epochs 2 $3 --max_steps $STEPS\n"
    )
    reading = reading_of(source_of(text, "run.sh"))
    said = {one.key: one.why for one in reading.not_modelled if "options that it holds" in one.why}
    assert list(said) == ["$ACCELERATE", "$EXTRA_ARGS", "$3"]
    assert reading.value_of("micro-batch") == 2
    assert reading.value_of("steps") is None


def test_one_argument_tells_transformers_trainer() -> None:
    for line in (
        "accelerate launch --num_processes 4 train.py --model_name_or_path Qwen/Qwen2.5-7B --bf16",
        "python train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2",
    ):
        assert reading_of(source_of(line, "run.sh")).value_of("trainer") == "hf-trainer"


def test_hybrid_sharding_divides_within_a_node() -> None:
    """torch's HYBRID_SHARD without a mesh: one group for each node; open where the GPUs of a node are not told."""
    line = "torchrun --nproc_per_node 4 --nnodes {} train.py --model_name_or_path Qwen/Qwen2.5-7B --bf16 --max_steps 9"
    for nodes in ("2", "2:4"):
        reading = reading_of(source_of(f"{line.format(nodes)} --fsdp 'hybrid_shard auto_wrap'", "run.sh"))
        assert (reading.value_of("gpus"), reading.value_of("dp-shard")) == (8, 4)
    text = "distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}\nmixed_precision: bf16\n"
    known = reading_of(source_of(f"{text}num_machines: 2\nnum_processes: 16\n", "accelerate.yaml"))
    assert known.value_of("dp-shard") == 8
    unknown = reading_of(source_of(text, "accelerate.yaml"))
    assert "dp-shard" in unknown.inputs
    assert unknown.value_of("dp-shard") is None
