"""Shell scripts do what bash makes of them: lists of commands, functions, arrays, outputs, files that they write."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.errors import NapkinError
from napkin.inputs.launch.read import read_launch, reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shell.edits import edited
from napkin.inputs.launch.shell.flow import Script
from napkin.inputs.launch.syntax import source_of

LINE = "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-2-7b-hf --bf16 --max_seq_length 2048"


def script(text: str) -> Reading:
    """Return the reading of a script in which LINE stands for the start of a launch line."""
    return reading_of(source_of(text.replace("LINE", LINE) + "\n", "run.sh"))


def commands(text: str) -> list[str]:
    """Return the commands that a script runs."""
    return [" ".join(words) for _, words in Script(text, "run.sh").commands.found]


@pytest.mark.parametrize(
    ("text", "micro"),
    [
        ('X=(1 2 4)\nLINE --per_device_train_batch_size "${X[1]}"', 2),
        ("X=(1 2 4)\nLINE --per_device_train_batch_size ${X[-1]}", 4),
        ("X=(4 2 1)\nLINE --per_device_train_batch_size $X", 4),
        ("X=(1)\nX+=(2)\nX[1]=6\nLINE --per_device_train_batch_size ${X[1]}", 6),
        ("declare -A X=( [7b]=4 [13b]=2 )\nS=7b\nLINE --per_device_train_batch_size ${X[$S]}", 4),
        ("declare -A X\nX[7b]=4\nX[13b]=2\nLINE --per_device_train_batch_size ${X[13b]}", 2),
        ("X=(a b c)\nLINE --per_device_train_batch_size ${#X[@]}", 3),
        ("X=4x8\nLINE --per_device_train_batch_size ${X%x*}", 4),
        ("X=4x8\nLINE --per_device_train_batch_size ${X#*x}", 8),
        ("A=6\nN=A\nLINE --per_device_train_batch_size ${!N}", 6),
        (": ${X:=3}\nLINE --per_device_train_batch_size $X", 3),
        ("let X=16/4\nLINE --per_device_train_batch_size $X", 4),
        ("((X = 2 + 1))\n((X++))\nLINE --per_device_train_batch_size $X", 4),
        ("set -- 2 5\nLINE --per_device_train_batch_size $2", 5),
    ],
)
def test_elements_and_edits_of_variables(text: str, micro: int) -> None:
    assert script(text).value_of("micro-batch") == micro


@pytest.mark.parametrize(
    ("text", "micro"),
    [
        ("X=4\n[ 1 = 2 ] && X=1\nLINE --per_device_train_batch_size $X", 4),
        ("X=4\n[ 1 = 1 ] && X=1\nLINE --per_device_train_batch_size $X", 1),
        ("X=4\n[[ 1 == 1 && 2 == 3 ]] && X=1\nLINE --per_device_train_batch_size $X", 4),
        ("X=4\n[[ 1 == 1 || 2 == 3 ]] && X=1\nLINE --per_device_train_batch_size $X", 1),
        ("X=4\n[[ 1 == 1 || 2 == 2 && 2 == 3 ]] && X=1\nLINE --per_device_train_batch_size $X", 1),
        ("X=4\n[ 1 = 2 -a 1 = 1 -o 1 = 1 ] && X=1\nLINE --per_device_train_batch_size $X", 1),
        ("X=4\n[[ 1 == 2 || 2 == 2 && 2 == 3 ]] && X=1\nLINE --per_device_train_batch_size $X", 4),
        ("X=4\n[ 1 = 1 ] || X=1\nLINE --per_device_train_batch_size $X", 4),
        ("X=4\n[ 1 = 2 ] && { X=1; }\nLINE --per_device_train_batch_size $X", 4),
        ("X=4\nDEBUG=false\n$DEBUG && X=1\nLINE --per_device_train_batch_size $X", 4),
        ("X=4\nif [ 1 = 1 ] && [ 1 = 2 ]; then X=1; fi\nLINE --per_device_train_batch_size $X", 4),
        ("X=4\nif ! [ 1 = 2 ]; then X=1; fi\nLINE --per_device_train_batch_size $X", 1),
        ("X=4\nN=2\nif (( N > 1 )); then X=1; fi\nLINE --per_device_train_batch_size $X", 1),
        ("X=4\n[ 1 = 2 ] && (( X = 1 ))\nLINE --per_device_train_batch_size $X", 4),
        ("X=4\n[ 1 = 1 ] && let X/=2\nLINE --per_device_train_batch_size $X", 2),
        ("X=4\nfor I in 1; do ((X*=2)); done\nLINE --per_device_train_batch_size $X", 8),
        ("X=4\nfor I in 1 2; do X=8; done\nLINE --per_device_train_batch_size $X", 8),
        ("X=4\n( X=1; echo $X )\nLINE --per_device_train_batch_size $X", 4),
        ("X=4\nsmall() { X=1; }\nLINE --per_device_train_batch_size $X", 4),
        ("X=4\nsmall() { X=1; }\nsmall\nLINE --per_device_train_batch_size $X", 1),
        ("for X in 2; do\nLINE --per_device_train_batch_size $X\ndone", 2),
        ("[ -z $N ] && N=4\nLINE --per_device_train_batch_size $N", 4),
    ],
)
def test_commands_run_or_not_as_the_one_before_them_decides(text: str, micro: int) -> None:
    assert script(text).value_of("micro-batch") == micro


def test_what_a_loop_or_an_unknown_list_decides_is_asked() -> None:
    several = script("for X in 1 2; do\nLINE --per_device_train_batch_size $X\ndone")
    assert several.value_of("micro-batch") is None
    for counts in ("X=$((X + 8))", "((X += 8))", "let X++", "X=$(expr $X + 8)"):
        assert (
            script(f"X=0\nfor H in a b; do {counts}; done\nLINE --per_device_train_batch_size $X").value_of(
                "micro-batch"
            )
            is None
        )
    undecided = script("X=4\nif grep -q big hosts; then ((X = 1)); fi\nLINE --per_device_train_batch_size $X")
    assert undecided.value_of("micro-batch") is None
    unknown = script("X=4\ngrep -q big hosts && X=1\nLINE --per_device_train_batch_size $X")
    assert unknown.value_of("micro-batch") is None
    element = script("X=(1 2)\nLINE --per_device_train_batch_size ${X[$RANK]}")
    assert element.value_of("micro-batch") is None


def test_what_is_unknown_is_said_in_words() -> None:
    text = (
        'case "$1" in\nbig) X=8 ;;\n*) X=2 ;;\nesac\nif [ $X = 8 ]; then Y=1; fi\nLINE --per_device_train_batch_size 2'
    )
    said = [one.key for one in script(text).not_modelled]
    assert "$X, set in an undecided branch (case)" in said


def test_a_function_gets_arguments_and_keeps_its_variables() -> None:
    text = """N=7
run() {
  local N=$1 STEPS=$2
  shift 2
  LINE --per_device_train_batch_size $N --max_steps $STEPS "$@"
}
run 2 30 --gradient_accumulation_steps 4
echo $N
"""
    reading = script(text)
    assert [reading.value_of(one) for one in ("micro-batch", "steps", "grad-accum")] == [2, 30, 4]
    flow = Script(text, "run.sh")
    assert flow.variables.texts["N"] == "7"
    assert commands("f() { train --a $1; }\nf 1\nf 2") == ["train --a 1", "train --a 2"]


def test_a_function_that_is_only_defined_is_read_last() -> None:
    assert script("run() {\nLINE --per_device_train_batch_size 2\n}").value_of("micro-batch") == 2
    both = "run() {\nLINE --per_device_train_batch_size 2\n}\nLINE --per_device_train_batch_size 4"
    assert script(both).value_of("micro-batch") == 4


def test_a_function_that_calls_itself_ends() -> None:
    assert commands("f() { train --a 1; f; }\nf")[0] == "train --a 1"
    assert len(commands("f() { f; f; f; }\nf\ntrain --a 1")) <= 1


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("N=$(echo 0,1,2 | tr ',' '\\n' | wc -l)", 3),
        ("N=$(echo 0,1,2 | awk -F',' '{print NF}')", 3),
        ("N=$(( $(echo 0,1,2 | tr -cd ',' | wc -c) + 1 ))", 3),
        ("IFS=',' read -ra G <<< '0,1,2,3'\nN=${#G[@]}", 4),
        ("N=$(echo '16 / 4' | bc)", 4),
        ("N=`expr 16 / 8`", 2),
        ('N=$(python -c "print(16 // 8)")', 2),
        ("#SBATCH --gres=gpu:a100:4\nN=$(nvidia-smi -L | wc -l)", 4),
        ("#SBATCH --gpus-per-node=6\nN=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)", 6),
        ("G=\nN=$((8 / $(echo $G | awk -F',' '{print NF}')))", None),  # no field: a division by 0
        ("N=$(nvidia-smi -L | wc -l)", None),
        ("N=$(cat hosts | wc -l)", None),
        ('N=$(python -c "print(16 / 8)")', None),
    ],
)
def test_the_output_of_commands(text: str, gpus: int | None) -> None:
    line = f"{text}\n{LINE.replace('8', '$N', 1)} --per_device_train_batch_size 2"
    assert script(line).value_of("gpus") == gpus


BATCH = "#!/bin/bash\n#SBATCH --gpus-per-node=4\n"
ARGUMENTS = "train.py --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 2 --bf16"


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        (f"#SBATCH -N 2\nsrun python {ARGUMENTS}", 8),
        (f"#SBATCH -N2 -n 2  # two nodes, -N 8 later\nsrun python {ARGUMENTS}", 8),
        (f"#SBATCH --nodes 2\n#SBATCH -N 3\nsrun python {ARGUMENTS}", 12),  # the last wins
        (f"#SBATCH --nodes=2\nmpirun -n 8 python {ARGUMENTS}", 8),
        (f"#SBATCH --nodes=2\nCMD='torchrun --nproc_per_node 4 {ARGUMENTS}'\nsrun bash -c \"$CMD\"", 8),
        (f"#SBATCH --nodes=2\ndeepspeed {ARGUMENTS}", None),
        (f"#SBATCH --nodes=2\ntorchrun --nproc_per_node 4 {ARGUMENTS}", None),
        (f"#SBATCH --nodes=2\nIP=$(srun --nodes=1 hostname)\npython {ARGUMENTS}", None),
        (f"#SBATCH --nodes=2\ntorchrun --nnodes 2 --nproc_per_node 4 {ARGUMENTS}", 8),
        (f"#SBATCH --nodes=1\npython {ARGUMENTS}", 4),
        (f'#SBATCH --comment="-N 2"\n#SBATCH -N 1\npython {ARGUMENTS}', 4),
    ],
)
def test_the_nodes_of_a_batch_script_count_where_a_program_starts_on_each(text: str, gpus: int | None) -> None:
    """sbatch(1): "Slurm runs a single copy of the batch script on the first node in the set of allocated nodes"."""
    one = script(BATCH + text).inputs["gpus"]
    assert one.value == gpus
    assert gpus is not None or "#SBATCH --nodes" in one.where


def test_a_variable_of_the_environment_stays_a_default_in_an_output() -> None:
    text = "G=${CUDA_VISIBLE_DEVICES:-0,1}\nN=$(echo $G | tr ',' ' ' | wc -w)\nLINE --per_device_train_batch_size $N"
    one = script(text).inputs["micro-batch"]
    assert (one.value, one.origin) == (2, "default")
    assert "CUDA_VISIBLE_DEVICES" in one.where


@pytest.mark.parametrize(
    ("how", "after"),
    [
        ("##*/", "c.tar.gz"), ("%%.*", "a/b/c"), ("%.*", "a/b/c.tar"), ("#*/", "b/c.tar.gz"),
        ("//\\//_", "a_b_c.tar.gz"),
        ("/tar/zip", "a/b/c.zip.gz"), (":2:3", "b/c"), (": -2", "gz"), ("^^", "A/B/C.TAR.GZ"), ("/[ab]/x", None),
        ("/#a\\//x", "xb/c.tar.gz"), ("/#b/x", "a/b/c.tar.gz"), ("/%.gz/", "a/b/c.tar"), ("/%.tar/x", "a/b/c.tar.gz"),
    ],
)  # fmt: skip
def test_edits_are_bashes(how: str, after: str | None) -> None:
    """Bash's own results for TEXT=a/b/c.tar.gz and ${TEXT<how>}; a pattern to replace is not followed."""
    assert edited("a/b/c.tar.gz", how) == after


def test_exit_ends_the_script_only_where_that_is_certain() -> None:
    assert commands("train --a 1\nexit 0\ntrain --a 2") == ["train --a 1"]
    assert commands("if [ 1 = 1 ]; then\n train --a 1\n exit\nfi\ntrain --a 2") == ["train --a 1"]
    assert commands('if [ -z "$1" ]; then\n exit 1\nfi\ntrain --a 2') == ["train --a 2"]
    assert commands('M=${M:-}\n[ -z "$M" ] && exit 1\ntrain --a 2') == ["train --a 2"]
    assert commands("N=${N:-2}\n(( N > 1 )) && exit\ntrain --a 2") == ["train --a 2"]
    assert commands("cd src || exit 1\ntrain --a 2") == ["train --a 2"]


def test_a_deepspeed_file_that_the_script_writes() -> None:
    text = """STAGE=${STAGE:-3}
DIR=$(dirname "$0")
cat > $DIR/ds.json <<EOF
{"zero_optimization": {"stage": $STAGE, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": true},
 "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": $ACC}
EOF
LINE --per_device_train_batch_size 2 --deepspeed $DIR/ds.json
"""
    reading = script(text)
    assert (reading.value_of("zero"), reading.value_of("offload")) == (3, "optimizer")
    assert reading.inputs["zero"].origin == "default"
    assert not any("was not found" in one.why for one in reading.not_modelled)


def test_settings_that_the_script_writes() -> None:
    text = """cat <<'EOF' > sft.yaml
stage: sft
finetuning_type: lora
lora_rank: 32
cutoff_len: 1024
model_name_or_path: meta-llama/Meta-Llama-3-8B
per_device_train_batch_size: 2
EOF
llamafactory-cli train sft.yaml
"""
    reading = script(text)
    assert reading.value_of("trainer") == "llama-factory"
    assert [reading.value_of(one) for one in ("lora-rank", "seq", "micro-batch")] == [32, 1024, 2]


def test_a_file_of_an_undecided_branch_is_not_known() -> None:
    text = 'if [ "$1" = big ]; then\ncat > ds.json <<EOF\n{"zero_optimization": {"stage": 3}}\nEOF\nfi\n'
    reading = script(f"{text}LINE --per_device_train_batch_size 2 --deepspeed ds.json")
    assert reading.value_of("zero") is None


def test_settings_of_a_script_that_a_script_submits(tmp_path: Path) -> None:
    """What `sbatch train.slurm --config sft.yaml` passes on is the program's; a file that is not here is asked for."""
    line = "sbatch train.slurm --config sft.yaml --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2\n"
    reading = reading_of(source_of(line, "run.sh"))
    assert reading.value_of("precision") is None
    assert reading.value_of("recompute") is None
    (tmp_path / "run.sh").write_text("sbatch train.slurm 4\n")
    (tmp_path / "train.slurm").write_text(f"#!/bin/bash\n{LINE} --per_device_train_batch_size $1\n")
    assert read_launch(str(tmp_path / "run.sh")).value_of("micro-batch") == 4


@pytest.mark.parametrize(
    "text",
    [
        'cd src\nCMD="LINE"\nCMD+=" --per_device_train_batch_size 4"\neval "$CMD"',
        'CMD="LINE --output_dir $OUT"\nCMD="$CMD --per_device_train_batch_size 4 | tee log"\neval $CMD',
        "singularity exec --nv image.sif LINE --per_device_train_batch_size 4",
        "LINE --run_name $(date)-sft --per_device_train_batch_size 4",
        'srun bash -c "\nX=\\"4 \\"\nLINE --per_device_train_batch_size \\$X\n"',
        "LINE `# a note` --per_device_train_batch_size 4 `# another`",
    ],
)
def test_command_lines_in_texts_and_wrappers(text: str) -> None:
    reading = script(text)
    assert reading.value_of("micro-batch") == 4
    assert not any(one.key.startswith("-sft") for one in reading.not_modelled)


def test_conversion_by_a_module_is_not_training() -> None:
    for line in ("python -m tools.convert_hf --model_name_or_path x --a 1", "python tasks/msdp/main.py --num-layers 2"):
        with pytest.raises(NapkinError, match=r"not of training|train a classifier"):
            reading_of(source_of(f"{line}\n", "run.sh"))


def test_a_script_that_the_script_writes() -> None:
    text = """COMMAND=$(cat <<- EOM
	export X=1
	LINE --per_device_train_batch_size 4
	EOM
)
echo "$COMMAND" > worker.sh
torchrun --no-python bash worker.sh
"""
    assert script(text).value_of("micro-batch") == 4


def test_the_shells_own_options_stand_before_its_line() -> None:
    text = "srun -N1 bash --noprofile --norc -c '\n  cd x\n  LINE --per_device_train_batch_size 4\n'"
    assert script(text).value_of("micro-batch") == 4


def test_a_function_that_writes_yaml_is_a_script() -> None:
    text = """run() {
    cat <<EOT > dpo.yaml
model_name_or_path: Qwen/Qwen2.5-7B
per_device_train_batch_size: 2
num_train_epochs: 1
learning_rate: 5.0e-7
max_length: 2048
EOT
    accelerate launch --num_processes 8 run_dpo.py dpo.yaml
}
run
"""
    reading = reading_of(source_of(text, "run.sh"))
    assert [reading.value_of(one) for one in ("gpus", "micro-batch", "seq")] == [8, 2, 2048]


def test_a_recipe_of_megatron_bridge_is_no_line_of_megatron() -> None:
    """NVIDIA-NeMo/Megatron-Bridge scripts/performance: the recipe sets precision, recomputation and the model."""
    text = "python run.py --model_recipe_name llama3_70b --tensor_model_parallel_size 4 --micro_batch_size 1"
    with pytest.raises(NapkinError, match="names a recipe"):
        reading_of(source_of(text, "run.sh"))


@pytest.mark.parametrize(
    "text",
    [
        "X=" + "$(echo " * 3000 + "1" + ")" * 3000,
        "X='eval $X'\neval $X",
        "eval " * 300 + "true",
        "f() { f; f; f; }\nf",
        "f() { g; }\ng() { f; }\nf",
        "X=" + "a" * 50_000 + "\nY=${X##*b}",
        "X=a\n" + "X=$X$X\n" * 60,
        "echo 'bash w.sh' > w.sh\nbash w.sh",
        "if [ 1 = 1 ]; then\n" * 500 + "fi\n" * 500,
        "[[ " + "a == b && " * 2000 + "c == c ]] && X=1",
    ],
)
def test_hostile_scripts_end(text: str) -> None:
    assert script(f"{text}\nLINE --per_device_train_batch_size 2").value_of("micro-batch") == 2


def test_brackets_that_are_nested_too_deeply_are_an_error() -> None:
    with pytest.raises(NapkinError, match="nested too deeply"):
        script("X=" + '"$(' * 4000 + "echo" + ')"' * 4000 + "\nLINE --per_device_train_batch_size 2")


def test_an_option_whose_name_is_unknown_leaves_the_precision_open() -> None:
    text = """T=fp16
if [[ $4 -eq 1 ]]; then T=bf16; fi
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 \\
  --micro-batch-size 4 --global-batch-size 32 --seq-length 1024 --max-position-embeddings 1024 --vocab-size 50304 {}
"""
    found = reading_of(source_of(text.format("--$T"), "run.sh"))
    assert found.value_of("precision") is None
    assert any("whose name" in one.why for one in found.not_modelled)
    assert reading_of(source_of(text.format(""), "run.sh")).value_of("precision") == "fp32"


def test_processes_of_mpirun_are_gpus() -> None:
    sizes = "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --micro-batch-size 4 --seq-length 64"
    for launcher, gpus in (
        ("mpirun -np 8 python", 8),
        ("msrun --worker_num 4 --local_worker_num 4", 4),
        ("python", None),
    ):
        assert reading_of(source_of(f"{launcher} pretrain_gpt.py {sizes}\n", "run.sh")).value_of("gpus") == gpus


def test_a_pretraining_program_of_its_own_is_not_megatrons() -> None:
    line = "python lightning_pretrain_MIND.py --model_name_or_path Qwen/Qwen2.5-7B --batch_size 16 --max_steps 9"
    found = reading_of(source_of(f"{line} --gradient_accumulation_steps 8 --fp16\n", "run.sh"))
    assert found.format.name == "hf-trainer"


@pytest.mark.parametrize(
    ("more", "seq"), [("", 1024), ("--max_prompt_length 512 --max_answer_length 256", None), ("--max_length 700", 700)]
)
def test_the_parts_of_a_length_leave_the_whole_open(more: str, seq: int | None) -> None:
    line = "accelerate launch sft.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 4 --use_peft"
    assert reading_of(source_of(f"{line} {more}\n", "run.sh")).value_of("seq") == seq


@pytest.mark.parametrize(("program", "seq"), [("deepspeed src/train_bash.py", 1024), ("llamafactory-cli train", 2048)])
def test_llama_factory_cuts_at_the_default_of_its_time(program: str, seq: int) -> None:
    line = "--stage sft --model_name_or_path Qwen/Qwen2.5-7B --finetuning_type lora --template default"
    assert reading_of(source_of(f"{program} {line}\n", "run.sh")).value_of("seq") == seq
