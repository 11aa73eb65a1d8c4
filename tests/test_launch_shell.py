"""Launch scripts that take arguments: they are read as they run without any, and what arguments add is asked."""

from __future__ import annotations

import pytest

from napkin.errors import NapkinError
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
        'MBS=$2\nMBS=${MBS:-"4"}',
        'if [ -z "$2" ]; then\n  MBS=4\nelif [ "$2" = big ]; then\n  MBS=64\nelse\n  MBS=$2\nfi',
    ],
)
def test_an_argument_that_is_left_out_leaves_the_scripts_own_value(before: str) -> None:
    reading = script(before, "--micro-batch-size ${MBS}")
    assert said(reading, "micro-batch") == (4, "default", "$2, --micro-batch-size")
    if "if " in before:
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


HF = "--model_name_or_path Qwen/Qwen2.5-7B --bf16 --learning_rate 1e-5"


def test_abbreviated_arguments_are_argparses() -> None:
    """argparse takes `--per_device_train_batch` for the only argument that begins so; `--lora` begins several."""
    line = f"python train.py {HF} --per_device_train_batch 4 --gradient_accumulation 3 --lora True"
    reading = reading_of(source_of(line, "run.sh"))
    assert (reading.value_of("micro-batch"), reading.value_of("grad-accum")) == (4, 3)
    assert (reading.value_of("adapter"), reading.inputs["adapter"].where) == (None, "--lora")


@pytest.mark.parametrize(
    ("more", "option"),
    [
        ("--batch_size 32 --mini_batch_size 8", "micro-batch"),
        ("--use_deepspeed", "zero"),
        ("--fsdp $SHARDING", "zero"),
        ("--epochs $N", "epochs"),
        ("--reward_model_name_or_path a/b", "task"),
    ],
)
def test_what_a_program_names_itself_is_asked_for(more: str, option: str) -> None:
    reading = reading_of(source_of(f"torchrun --nproc_per_node 8 train.py {HF} {more}", "run.sh"))
    assert option in reading.inputs
    assert reading.value_of(option) is None


def test_epochs_have_several_names() -> None:
    assert reading_of(source_of(f"python train.py {HF} --epochs 5", "run.sh")).value_of("epochs") == 5


def test_lengths_in_a_block_of_data() -> None:
    text = (
        "model: {name: Qwen/Qwen2.5-7B}\ndata: {max_seq_length: 3072}\ngeneration: {max_length: 99}\n"
        "training: {per_device_train_batch_size: 2, gradient_accumulation_steps: 4, bf16: true}\npeft: {r: 8}\n"
    )
    assert reading_of(source_of(text, "train.yaml")).value_of("seq") == 3072


def test_a_megatron_program_of_another_family_is_refused_without_its_kind() -> None:
    """A fork's pretrain_llama.py builds a Llama from sizes alone; with the options of its kind it is read."""
    sizes = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --micro-batch-size 1"
    said = {}
    for program in ("pretrain_llama.py", "pretrain_gpt.py"):
        for kind in ("", "--swiglu --normalization RMSNorm"):
            line = f"torchrun {program} {sizes} --vocab-size 32000 --max-position-embeddings 2048 {kind}"
            said[program, kind] = [one.key for one in reading_of(source_of(line, "run.sh")).refused]
    assert said["pretrain_llama.py", ""] == ["pretrain_llama.py"]
    assert not any(keys for (_, kind), keys in said.items() if kind)
    assert not said["pretrain_gpt.py", ""]


@pytest.mark.parametrize(
    "more", ["> out.log", "> $LOG/out.log 2>&1", "2>&1", ">> a 2> b", "&> log", "> >(tee -a log) 2>&1", "< in"]
)
def test_redirections_are_no_values(more: str) -> None:
    source = source_of(f"python train.py {HF} --fp16 True --max_steps 9 {more} --x 1 {more} | tee log", "run.sh")
    assert [source.plain(one) for one in ("fp16", "max_steps", "x")] == [True, 9, 1]


def test_a_placeholder_is_a_value() -> None:
    assert source_of("python train.py --output_dir <path> --bf16", "run.sh").plain("output_dir") == "<path>"


def test_the_name_of_a_program_tells_its_task() -> None:
    def task(program: str) -> object:
        return reading_of(source_of(f"accelerate launch {program} {HF} --beta 0.1", "run.sh")).value_of("task")

    assert [task(one) for one in ("train_llm_dpo.py", "src/train_orpo.py", "train.py")] == ["dpo", "orpo", None]
    assert task("compare_dpo_kto.py") is None


def test_a_program_with_axolotls_names_is_not_axolotl() -> None:
    """alpaca-lora's programs have base_model and micro_batch_size too, and a length and adapters of their own."""
    line = "python sft.py --base_model Qwen/Qwen2.5-7B --micro_batch_size 4 --max_length 2048 --lora_r 64 --seed 2"
    with pytest.raises(NapkinError, match=r"starts sft\.py"):
        reading_of(source_of(line, "run.sh"))


def test_accumulation_has_several_names() -> None:
    assert reading_of(source_of(f"python train.py {HF} --grad_accum 16", "run.sh")).value_of("grad-accum") == 16


def test_a_default_of_a_copied_variable_is_used_where_that_is_not_set() -> None:
    before = "NODES=$WORLD\nMBS=${NODES:-4}\nSET=8\nTP=${SET:-2}"
    reading = script(before, "--micro-batch-size $MBS --tensor-model-parallel-size $TP")
    assert said(reading, "micro-batch") == (4, "default", "WORLD, --micro-batch-size")
    assert said(reading, "tp")[:2] == (8, "from file")
