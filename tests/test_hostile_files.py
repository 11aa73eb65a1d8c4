"""Launch files that are hostile, or not what they seem: each is answered in moments, or refused in one line."""

from __future__ import annotations

import pathlib

import pytest

from napkin.errors import NapkinError
from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.shell.closing import unclosed
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin

AXOLOTL = "base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: 2\n"
MEGATRON = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2"


def doubled(first: str, each: str, times: int = 45) -> str:
    """Return lines each of which holds the one before twice."""
    return "\n".join([first, *(each.replace("NEXT", str(at)).replace("LAST", str(at - 1)) for at in range(1, times))])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (doubled("a0: &a0 [x]", "aNEXT: &aNEXT [*aLAST, *aLAST]") + f"\n{AXOLOTL}", "its aliases repeat too much"),
        (doubled("a0: &a0 {x: 1}", "aNEXT: &aNEXT {l: *aLAST, r: *aLAST}") + f"\n{AXOLOTL}", "its aliases repeat"),
        (AXOLOTL + "".join(f"k{at}: 1\n" for at in range(20_000)), "holds more than 10,000 keys"),
        (AXOLOTL + "".join(f"{'k' * 900}{at}: 1\n" for at in range(1000)), "its keys have more than 300,000"),
        (AXOLOTL.replace("Llama-3.1-8B", "m" * 70000), ":1: base_model: is a text of more than 64,000 characters"),
        (AXOLOTL.replace("2", "1.0e+300"), ":2: micro_batch_size: 1e+300 is out of range"),
        (AXOLOTL.replace("2", "yes"), ":2: micro_batch_size: true is not a number"),
        (f"[{'.'.join('a' * 3000)}]\nb = 1\n", "is nested too deeply"),
        (f"[training]\nseq_len = {'9' * 5000}\n", "not TOML"),
        ("[training]\nseq_len =\n", ":2: not TOML"),
        (f"{MEGATRON} --tensor-model-parallel-size", ":1: --tensor-model-parallel-size: has no value"),
        (f"{MEGATRON} {'--x 1 ' * 200_000}", "is a script of more than 1 MB"),
    ],
)
def test_a_file_that_grows_or_is_too_large_is_refused_at_once(
    napkin: Napkin, tmp_path: pathlib.Path, text: str, message: str
) -> None:
    path = tmp_path / "launch.txt"
    path.write_text(text)
    outcome = napkin(f"read --from {path}")
    assert (outcome.status, len(outcome.errors)) == (2, 1)
    assert message in outcome.errors[0]


@pytest.mark.parametrize(
    "text",
    [
        doubled("r0: ''", "rNEXT: ${rLAST}${rLAST}") + f"\n{AXOLOTL}",
        doubled("r0: xx", "rNEXT: ${rLAST}${rLAST}") + f"\n{AXOLOTL}",
        doubled("A=xx", "A=$A$A") + f"\n{MEGATRON} --tensor-model-parallel-size $A",
        doubled("A=(1 2)", 'A=("${A[@]}" "${A[@]}")') + f"\n{MEGATRON} ${{A[@]}}",
    ],
)
def test_references_that_double_are_left_open(text: str) -> None:
    reading = reading_of(source_of(text, "launch.txt"))
    assert reading.inputs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"train_batch_size": 8, "zero_optimization": 3}',
            "zero_optimization: 3 is given where a block of keys",
        ),
        ('{"train_batch_size": 8, "fp16": true}', "fp16: true is given where a block of keys is expected"),
        ("trainer: 8\nmodel: {micro_batch_size: 1, global_batch_size: 8}\n", "trainer: 8 is given where a block"),
        ("parallelism: 8\ntokens: {micro_batch_size: 2}\nmodel: {model_config: {}}\n", "parallelism: 8 is given where"),
    ],
)
def test_a_value_in_the_place_of_a_block_is_not_passed_over(
    napkin: Napkin, tmp_path: pathlib.Path, text: str, message: str
) -> None:
    path = tmp_path / "launch.txt"
    path.write_text(text)
    outcome = napkin(f"read --from {path}")
    assert outcome.status == 2
    assert f":1: {message}" in outcome.errors[0]


def test_a_block_that_is_switched_off_is_none() -> None:
    reading = reading_of(source_of('{"train_batch_size": 8, "zero_optimization": false, "bf16": null}', "a.json"))
    assert reading.value_of("zero") == 0


@pytest.mark.parametrize(
    "text",
    [
        'model.name = "llama3"\nmodel.flavor = "8B"\ntraining.seq_len = 2048\nparallelism.tensor_parallel_degree = 2\n',
        'model = {name = "llama3", flavor = "8B"}\ntraining.seq_len = 2048\nparallelism.tensor_parallel_degree = 2\n',
    ],
)
def test_toml_without_sections_is_toml(text: str) -> None:
    reading = reading_of(source_of(text, "train.toml"))
    assert {name: reading.value_of(name) for name in ("framework", "model", "seq", "tp")} == {
        "framework": "torchtitan",
        "model": "llama3.1-8b",
        "seq": 2048,
        "tp": 2,
    }


def test_lint_names_the_file_and_the_model_that_replaces_its_own(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(f"{AXOLOTL}adapter: lora\nlora_r: 8\nlora_target_linear: true\n")
    first = napkin(f"lint {path} --model llama3-8b --gpus 8 --hardware h100 --json").data
    line = first["rows"][0]["command"]
    assert line.startswith(f"napkin lint llama3-8b --from {path} ")
    assert napkin(line.removeprefix("napkin ")).status == 0
    twice = napkin("lint llama3-8b --model gpt2 --gpus 8 --hardware h100")
    assert (twice.status, twice.errors) == (2, ["error: llama3-8b and --model are both a model"])


def test_a_part_of_a_run_says_nothing_about_how_the_answer_is_written(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: gpt2\nhardware: h100\ngpus: 8\nphases:\n  - {tokens: 1B, json: true}\n")
    outcome = napkin(f"train-time --run {path}")
    assert (outcome.status, outcome.errors) == (2, [f"error: {path}:5: phases.0.json: belongs to the whole run"])


def test_the_fewest_gpus_of_several_machines(napkin: Napkin) -> None:
    line = "plan llama3-8b --hardware h100,mi300x,h200 --tokens 1T --within 10d"
    rows = napkin(f"{line} --min gpus --json").data["rows"]
    chosen = next(row for row in rows if row["recommended"])
    assert chosen["gpus"] == min(row["gpus"] for row in rows if row["misses"] is None)
    for options, status, message in (
        ("--min gpus --objective cost", 2, "contradict each other"),
        ("--images 3", 2, "has no vision tower"),
        ("--emit deepspeed", 2, "the layout of one machine"),
    ):
        outcome = napkin(f"{line} {options}")
        assert outcome.status == status
        assert message in outcome.errors[0]


@pytest.mark.parametrize(
    ("more", "policy"),
    [
        ("bf16: false\nfp16: false\nfloat16: true\n", "param=fp16,grad=fp16,compute=fp16,state=fp16"),
        ("bf16: false\nbfloat16: true\nfloat16: false\n", "bf16-pure"),
        ("bf16: false\nfp16: false\n", "fp32"),
        ("fsdp_config: {fsdp_version: 2}\n", "amp-bf16"),
    ],
)
def test_trainer_loads_the_format_that_it_names(more: str, policy: str) -> None:
    """src/trainer/utils/config/__init__.py: bf16 or bfloat16, else fp16 or float16, else fp32; bf16 is auto unless
    stated."""
    reading = reading_of(source_of(AXOLOTL + more, "trainer.yaml"))
    assert reading.value_of("precision") == policy


def test_an_option_that_only_commands_to_paste_repeat_is_named(napkin: Napkin) -> None:
    """Remedies repeat every option, so that they differ if no figure does."""
    line = "memory qwen2.5-7b --gpus 8 --hardware h100 --dropout 0.1 --json"
    assert any("--dropout" in note for note in napkin(line).data["notes"])
    line = "train-time qwen2.5-7b --gpus 8 --hardware h100 --tokens 100M --dtype fp16 --json"
    assert any("--dtype" in note for note in napkin(line).data["notes"])


def test_a_deadline_is_judged_also_where_the_layout_does_not_fit(napkin: Napkin) -> None:
    line = "train-time qwen2.5-7b --gpus 8 --hardware h100 --task sft --samples 52k --sample-tokens 300 --json"
    answers = [napkin(f"{line} --within {limit}").data for limit in ("1s", "10d")]
    assert {one["verdict"] for one in answers} == {"does not fit"}
    said = [next(note for note in one["notes"] if "--within" in note) for one in answers]
    assert [note.rpartition(": ")[2] for note in said] == ["broken", "holds"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4800ba", ("steps", 4800)),
        ("2e12tok", ("tokens", 2 * 10**12)),
        ("1_000ba", ("steps", 1000)),
        ("1.5ep", ("epochs", 1.5)),
        ("1..1e18ba", "is not a duration"),
        ("1e400tok", "out of range"),
        ("_ba", "is not a duration"),
        ("5weeks", "is not a duration"),
    ],
)
def test_how_long_a_run_is(text: str, found: tuple[str, float] | str) -> None:
    """LLM Foundry's max_duration; what is none is an error at its line."""
    foundry = f"model:\n  name: mpt_causal_lm\nglobal_train_batch_size: 64\nmax_duration: {text}\n"
    if isinstance(found, str):
        with pytest.raises(NapkinError, match=f"^launch.yaml:4: max_duration: .*{found}"):
            reading_of(source_of(foundry, "launch.yaml"))
        return
    reading = reading_of(source_of(foundry, "launch.yaml"))
    stated = {name: reading.inputs[name].value for name in ("steps", "tokens", "epochs") if name in reading.inputs}
    assert stated == dict([found])


def test_a_budget_that_is_nearly_nothing_is_too_little(napkin: Napkin) -> None:
    """5e-324 is the smallest number above 0: its N·D is 0, and 0/0 is not a number of parameters."""
    outcome = napkin("optimal --budget 5e-324 --price 1000 --hardware h100")
    assert (outcome.status, len(outcome.errors)) == (1, 1)
    assert "not enough" in outcome.errors[0]


BOTH = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "fp16": {"enabled": %s}}'


def test_two_precisions_that_the_framework_refuses_are_a_contradiction(napkin: Napkin, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ds.json"
    line = f"memory gpt2 --hardware h100 --from {path}"
    path.write_text(BOTH % "true")
    outcome = napkin(line)
    assert outcome.status == 3
    assert "fp16.enabled" in outcome.errors[0]
    assert napkin(f"{line} --precision bf16-mixed").status == 0
    path.write_text(BOTH % "false")
    assert napkin(line).status == 0
    trainer = reading_of(
        source_of("torchrun train.py --model_name_or_path gpt2 --per_device_train_batch_size 1 --bf16 --fp16", "run.sh")
    )
    assert [one.key for one in trainer.refused] == ["--fp16"]


@pytest.mark.parametrize("value", ["-5", "-1", "1.5", '"many"'])
def test_a_buffer_size_that_deepspeed_refuses_is_an_error(napkin: Napkin, tmp_path: pathlib.Path, value: str) -> None:
    path = tmp_path / "ds.json"
    path.write_text(f'{{"zero_optimization": {{"stage": 2,\n"reduce_bucket_size": {value}}}}}')
    outcome = napkin(f"read --from {path}")
    assert outcome.status == 2
    assert "ds.json:2: zero_optimization.reduce_bucket_size" in outcome.errors[0]


@pytest.mark.parametrize("value", ["5e8", "0", '"auto"', "500000000"])
def test_a_buffer_size_that_deepspeed_takes_is_read(napkin: Napkin, tmp_path: pathlib.Path, value: str) -> None:
    path = tmp_path / "ds.json"
    path.write_text(f'{{"zero_optimization": {{"stage": 2, "reduce_bucket_size": {value}}}}}')
    assert napkin(f"read --from {path}").status == 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('torchrun train.py \\\n --bf16 --output_dir "x \\\n --lr 2\n', 2),
        ("A='x\ntorchrun train.py --lr 2\n", 1),
        ('ARGS=(\n  --lr 2\n  --name "x\n)\ntorchrun train.py ${ARGS[@]}\n', 3),
        ("torchrun train.py --lr 2 > 'log\n", 1),
        ("echo a\ntorchrun train.py --name `date\n", 2),
    ],
)
def test_a_quote_that_is_never_closed_is_named_by_its_line(text: str, line: int) -> None:
    opened = unclosed(text)
    assert opened is not None
    assert (opened.line, opened.name) == (line, "a quote")


@pytest.mark.parametrize(
    ("text", "line", "word", "end"),
    [
        ("N=$(nvidia-smi -L | wc -l\ntorchrun train.py --lr 2\n", 1, "$(", ")"),
        ("set -e\nX=${A:-b\ntorchrun train.py --lr 2\n", 2, "${", "}"),
        ("ARGS=(\n  --lr 2\ntorchrun train.py ${ARGS[@]}\n", 1, "(", ")"),
        ("(\ncd run\ntorchrun train.py --lr 2\n", 1, "(", ")"),
        ("cd run\nif [ -d x ]; then\ntorchrun train.py --lr 2\n", 2, "if", "fi"),
        ("for x in 1 2; do\n  if true; then a; fi\n  torchrun train.py --lr 2\n", 1, "for", "done"),
        ("for x in 1 2; do\n  if true; then\n  torchrun train.py --lr 2\ndone\n", 2, "if", "fi"),
        ("while read x\ndo\n  torchrun train.py --lr 2\n", 1, "while", "done"),
        ("case $1 in\n a|b) torchrun train.py --lr 2 ;;\n", 1, "case", "esac"),
        ("run() {\n  torchrun train.py --lr 2\n", 1, "{", "}"),
        ("function run {\n  torchrun train.py --lr 2\n", 1, "{", "}"),
    ],
)
def test_what_a_script_never_closes_is_named_by_its_line(text: str, line: int, word: str, end: str) -> None:
    opened = unclosed(text)
    assert opened is not None
    assert (opened.line, opened.name, opened.closed_by) == (line, repr(word), repr(end))


def test_a_script_with_an_unclosed_word_is_refused(tmp_path: pathlib.Path, napkin: Napkin) -> None:
    file = tmp_path / "run.sh"
    file.write_text("cd run\nif [ -d x ]; then\ntorchrun pretrain_gpt.py --num-layers 4 --hidden-size 64\n")
    outcome = napkin(f"memory --from {file}")
    assert outcome.status == 2
    assert "run.sh:2: 'if' is opened and never closed" in outcome.err
    assert "hint: close it with 'fi'" in outcome.err


@pytest.mark.parametrize(
    "text",
    [
        "torchrun train.py --name \"it's\" # don't\n",
        "torchrun train.py --kwargs $'\\'{\"a\": 1}\\'' --lr 2\n",
        "cat > x <<'EOF'\nit's\nEOF\ntorchrun train.py --lr 2\n",
        "X=$(cat <<EOF\nit's\nEOF\n)",
        'echo "${A:-"b"}"',
        "echo it\\'s",
        "# it's\n",
        "(cd run; torchrun train.py --lr 2)\n",
        "if (( 2 > 1 )); then (a); elif b; then { c; }; else ! d; fi\n",
        "case $1 in\n (a) b ;;\n c|d) if e; then f; fi ;;\nesac\n",
        "case x in a) b ;; esac\n",
        "run () (\n  a\n)\nfor ((i=0; i<3; i++)); do run; done | tee log\n",
        "[[ a =~ (x|y) ]] && (a)\n",
        "echo if for case {\n",
        "A=(--lr 2 $(b) ${c[@]})\n",
        "",
    ],
)
def test_a_script_that_closes_all_is_read(text: str) -> None:
    assert unclosed(text) is None
