"""How much is trained on: steps, samples and their lengths, packed or padded."""

from __future__ import annotations

import json
import pathlib

import pytest

from napkin.inputs.lengths import SampleLengths
from tests.conftest import run_line

RUN = "train-time llama3-8b --gpus 1 --hardware h100 --lora-rank 16 --seq 2048 --json"


def test_steps_are_tokens_of_the_global_batch() -> None:
    found = run_line(f"{RUN} --steps 1000 --global-batch 64").values
    same = run_line(f"{RUN} --tokens {1000 * 64 * 2048} --global-batch 64").values
    assert found["tokens"] == 1000 * 64 * 2048
    assert found["time"] == pytest.approx(same["time"])


def test_steps_take_the_batch_of_the_layout() -> None:
    line = "train-time llama3-8b --gpus 8 --hardware h100 --seq 2048 --micro-batch 2 --steps 100 --json"
    assert run_line(line).values["tokens"] == 100 * 8 * 2 * 2048


def test_packed_samples_need_no_model() -> None:
    line = "train-time 7B --gpus 8 --hardware a100 --mfu 0.4 --json"
    found = run_line(f"{line} --samples 52k --sample-tokens 350 --epochs 3").values
    assert found["tokens"] == 52_000 * 350 * 3
    assert found["time"] == run_line(f"{line} --tokens {52_000 * 350 * 3}").values["time"]


def test_packed_samples_are_their_tokens_and_padded_ones_whole_sequences() -> None:
    packed = run_line(f"{RUN} --samples 52k --sample-tokens 350 --epochs 3").values
    assert packed["tokens"] == 52_000 * 350 * 3
    line = f"{RUN} --samples 52k --sample-tokens 350 --epochs 3 --no-packing"
    padded = run_line(f"{line} --attention flash2").values
    assert padded["tokens"] == 52_000 * 2048 * 3
    assert padded["tokens/real"] == 52_000 * 350 * 3
    assert padded["padding/share"] == pytest.approx(1 - 350 / 2048)
    same = run_line(f"{RUN} --samples 52k --sample-tokens 350 --epochs 3 --attention flash2").values
    assert same["tokens"] == packed["tokens"]
    assert padded["time"] / same["time"] == pytest.approx(2048 / 350)
    masked = run_line(line)  # torch's own attention computes the pairs that the mask of padding hides
    assert masked.values["time"] > 1.05 * padded["time"]
    assert any("--attention flash2" in note for note in masked.data["notes"])


def test_the_longest_of_a_micro_batch() -> None:
    """Of lengths 1 and 3, alike frequent, two at once are 1 in one case of four: 1/4 · 1 + 3/4 · 3."""
    lengths = SampleLengths(((1, 5), (3, 5)))
    assert lengths.mean == 2
    assert lengths.padded(1) == pytest.approx(2)
    assert lengths.padded(2) == pytest.approx(0.25 * 1 + 0.75 * 3)
    assert lengths.padded(1000) == pytest.approx(3)
    assert lengths.cut(2) == SampleLengths(((1, 5), (2, 5)))
    assert [lengths.quantile(share) for share in (0.1, 0.5, 0.51, 1)] == [1, 1, 3, 3]


@pytest.fixture
def samples(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "samples.jsonl"
    lines = [{"input_ids": list(range(100)), "n": 100}] * 30 + [{"input_ids": list(range(300)), "n": 300}] * 10
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    return file


def test_lengths_of_a_file_and_a_run_on_them(samples: pathlib.Path, tmp_path: pathlib.Path) -> None:
    answer = run_line(f"data lengths {samples} --tokens-field input_ids --json")
    assert answer.data["histogram"] == [[100, 30], [300, 10]]
    assert answer.values["data/tokens"] == 6000
    assert answer.values["data/length/mean"] == 150
    assert answer.values["data/length/p90"] == 300
    # two at once: 300 unless both are 100
    mean = 100 * 0.75**2 + 300 * (1 - 0.75**2)
    assert answer.values["data/padding/2"] == pytest.approx(1 - 150 / mean)
    assert run_line(f"data lengths {samples} --tokens-field n --json").values == answer.values
    proposed = run_line(f"data lengths {samples} --tokens-field n").out.partition("next: napkin ")[2]
    assert "--lengths lengths.json" in proposed
    file = tmp_path / "lengths.json"
    file.write_text(answer.out)
    packed = run_line(f"{RUN} --lengths {file} --epochs 2").values
    assert packed["tokens"] == 12_000
    padded = run_line(f"{RUN} --lengths {file} --epochs 2 --no-packing --micro-batch 2").values
    assert padded["tokens"] == pytest.approx(2 * 40 * mean)
    # a step is as long as one of sequences of the padded length, not of --seq
    flash = "--attention flash2 --no-packing --micro-batch 2"
    run = run_line(f"{RUN} --lengths {file} --epochs 2 {flash}").values
    line = f"step llama3-8b --gpus 1 --hardware h100 --lora-rank 16 --seq {round(mean)} --micro-batch 2 --json"
    step = run_line(f"{line} --attention flash2").values["step/time"]
    assert run["time/uninterrupted"] == pytest.approx(step * run["tokens"] / (2 * round(mean)))
    cut = run_line(f"{RUN.replace('2048', '200')} --lengths {file}")
    assert cut.values["tokens"] == 30 * 100 + 10 * 200
    assert any("longer than 200 tokens and cut" in note for note in cut.data["notes"])


@pytest.mark.parametrize(
    ("layout", "slowest"),
    [
        ("", 100 * 0.75**8 + 300 * (1 - 0.75**8)),  # one micro-batch a step: the longest of 4 ranks with 2 samples
        ("--zero 3 --grad-accum 4", 100 * 0.75**8 + 300 * (1 - 0.75**8)),  # ranks gather each layer: every micro-batch
        ("--grad-accum 4", 187.5 + (100 * 0.75**8 + 300 * (1 - 0.75**8) - 187.5) / 2),  # four even out by half
    ],
)
def test_ranks_wait_for_the_one_with_the_longest_samples(tmp_path: pathlib.Path, layout: str, slowest: float) -> None:
    """The longest of n samples has 300 tokens unless all have 100, as three of four have: 187.5 of two."""
    file = tmp_path / "lengths.json"
    file.write_text('{"histogram": [[100, 30], [300, 10]]}')
    flash = f"--attention flash2 --micro-batch 2 {layout} --lora-rank 16 --gpus 4 --hardware h100"
    line = f"train-time llama3-8b {flash} --seq 2048 --lengths {file} --epochs 20 --no-packing --json"
    run = run_line(line).values
    assert run["tokens"] == pytest.approx(20 * 40 * 187.5)
    steps = run["tokens"] / (188 * 2 * 4 * (4 if "accum" in layout else 1))
    step = run_line(f"step llama3-8b {flash} --seq {round(slowest)} --json").values["step/time"]
    assert run["time/uninterrupted"] == pytest.approx(step * steps)


def test_plan_takes_samples_too() -> None:
    line = "plan llama3-8b --gpus 8 --hardware h100 --seq 2048 --global-batch 64 --json"
    line = f"{line} --attention flash2"
    found = run_line(f"{line} --samples 100k --sample-tokens 1024 --no-packing").values
    assert found["time"] == pytest.approx(run_line(f"{line} --tokens {100_000 * 2048}").values["time"])


def test_flash_attention_that_a_launch_file_names_takes_lengths(tmp_path: pathlib.Path) -> None:
    """axolotl: flash_attention is the package; what it pads is no mask."""
    file, found = tmp_path / "axolotl.yaml", []
    for packed in ("false", "true"):
        file.write_text(
            "base_model: NousResearch/Meta-Llama-3-8B\nadapter: lora\nlora_r: 16\nlora_target_linear: true\n"
            f"sequence_len: 4096\nsample_packing: {packed}\nflash_attention: true\nmicro_batch_size: 2\n"
            "gradient_accumulation_steps: 1\nbf16: true\ngradient_checkpointing: true\n"
        )
        line = f"train-time --from {file} --gpus 1 --hardware h100 --samples 10k --sample-tokens 1024 --epochs 1 --json"
        found.append(run_line(line).values["time"])
    assert found[0] / found[1] == pytest.approx(4096 / 1024)


def test_plan_needs_the_micro_batch_to_whose_longest_samples_are_padded(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "lengths.json"
    file.write_text('{"histogram": [[100, 30], [300, 10]]}')
    line = f"plan llama3-8b --gpus 8 --hardware h100 --seq 2048 --lengths {file} --no-packing --json"
    refused = run_line(line)
    assert refused.status == 2
    assert "depends on its size, which plan chooses" in refused.err
    mean = 100 * 0.75**4 + 300 * (1 - 0.75**4)
    found = run_line(f"{line} --micro-batch 4")
    assert found.data["inputs"]["tokens"]["value"] == int(40 * mean)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"{RUN} --tokens 1M --samples 5", "--tokens and --samples both say"),
        (f"{RUN} --mfu 0.4 --steps 5", "--steps needs --global-batch"),
        (f"{RUN} --samples 5", "--samples needs the length of a sample"),
        (f"{RUN} --samples 5 --sample-tokens 4096", "longer than a sequence of 2,048"),
        ("train-time --params 8B --gpus 1 --hardware h100 --samples 5 --sample-tokens 9 --no-packing", "needs a MODEL"),
        ("train-time --params 8B --gpus 1 --hardware h100 --steps 5 --global-batch 9", "needs a MODEL"),
        ("data lengths no-such-file --tokens-field n", "No such file"),
        ("data lengths no-such-file", "no-such-file: No such file"),
        ("data --tokens 1T --vocab 5 --tokens-field n", "--tokens-field"),
    ],
)
def test_what_is_refused(line: str, says: str) -> None:
    found = run_line(line)
    assert found.status == 2
    assert says in found.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("not json\n", ":1: is not a JSON object"),
        ('{"input_ids": [1]}\n{"other": [1]}\n', ":2: has no field input_ids"),
        ('{"input_ids": "a text"}\n', "neither a list of token ids nor their number"),
        ('{"input_ids": []}\n', "is an empty list"),
        ("100\n0\n", ":1: is not an object with fields"),
        ("\n\n", "has no samples"),
    ],
)
def test_files_that_cannot_be_counted(tmp_path: pathlib.Path, text: str, says: str) -> None:
    file = tmp_path / "samples.jsonl"
    file.write_text(text)
    found = run_line(f"data lengths {file} --tokens-field input_ids")
    assert found.status == 2
    assert says in found.err


@pytest.mark.parametrize(
    "text", ["{}", '{"histogram": []}', '{"histogram": [[1, 2], [1, 3]]}', '{"histogram": [[0, 2]]}']
)
def test_lengths_that_cannot_be_read_back(tmp_path: pathlib.Path, text: str) -> None:
    file = tmp_path / "lengths.json"
    file.write_text(text)
    assert run_line(f"{RUN} --lengths {file}").status == 2


def test_a_field_is_needed_where_samples_have_fields(samples: pathlib.Path) -> None:
    found = run_line(f"data lengths {samples}")
    assert found.status == 2
    assert ":1: --tokens-field is missing" in found.err
    assert "hint: --tokens-field input_ids or --tokens-field n\n" in found.err


def test_samples_of_text_have_no_field_to_name(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "chat.jsonl"
    file.write_text('{"messages": [{"role": "user", "content": "hi"}], "text": "hi"}\n')
    found = run_line(f"data lengths {file}")
    assert found.status == 2
    assert "text is not tokenized here" in found.err


def test_the_passes_of_a_launch_file_state_no_amount_without_samples(tmp_path: pathlib.Path) -> None:
    """axolotl's num_epochs is over a data set that the file does not count: a plan needs none of it."""
    file = tmp_path / "train.yaml"
    file.write_text(
        "base_model: meta-llama/Llama-3.1-8B\nadapter: lora\nlora_r: 16\nlora_target_linear: true\n"
        "sequence_len: 2048\nsample_packing: true\nmicro_batch_size: 1\nnum_epochs: 3\nbf16: true\n"
        "gradient_checkpointing: true\noptimizer: adamw_torch\n"
    )
    line = f"plan --from {file} --hardware h100 --gpus 8"
    assert run_line(line).status == 0
    assert "--samples is missing" in run_line("plan llama3-8b --gpus 8 --hardware h100 --epochs 3").err
    assert "time" in run_line(f"{line} --samples 10k --sample-tokens 500 --json").values


@pytest.mark.parametrize("text", ["100\n300\n300\n", "[7, 7]\n", '{"input_ids": [1]}\n{"input_ids": [1, 2]}\n'])
def test_samples_given_as_lengths_name_what_counts_them(tmp_path: pathlib.Path, text: str) -> None:
    """The command that the error names, and the pair that it proposes next, both work."""
    file = tmp_path / "samples.jsonl"
    file.write_text(text)
    found = run_line(f"{RUN} --lengths {file}")
    assert found.status == 2
    field = " --tokens-field input_ids" if text.startswith("{") else ""
    assert f"napkin data lengths {file}{field} --json -o lengths.json" in found.err
    counted = run_line(f"data lengths {file}{field}")
    assert counted.status == 0, counted.err
    pair = " ".join(counted.out.partition("next:")[2].replace("\\\n", " ").split())
    first, second = (line.replace("lengths.json", str(tmp_path / "lengths.json")) for line in pair.split(" && "))
    assert run_line(first.removeprefix("napkin ")).status == 0
    assert run_line(second.removeprefix("napkin ")).status == 0


@pytest.mark.parametrize("command", ["train-time", "plan"])
@pytest.mark.parametrize("amount", ["--train-iters 1000", "--train-samples=32000"])
def test_a_pasted_launch_says_how_much_is_trained_on(command: str, amount: str) -> None:
    """1,000 steps of 32 sequences of 4,096 tokens; a sample of such a launch is a whole sequence."""
    line = f"{command} llama3-8b --hardware h100 --gpus 8 {amount} --global-batch-size 32 --seq-length 4096 --json"
    tokens = f"{command} llama3-8b --hardware h100 --gpus 8 --tokens 131072000 --global-batch 32 --seq 4096 --json"
    assert run_line(line).values["time"] == pytest.approx(run_line(tokens).values["time"])


@pytest.mark.parametrize("option", ["--train-iters", "--train-samples"])
def test_the_amount_of_a_pasted_launch_is_stated_once(option: str) -> None:
    line = f"llama3-8b --hardware h100 --gpus 8 {option} 1000 --global-batch-size 32 --seq-length 4096"
    answer = run_line(f"train-time {line} --tokens 1T")
    assert answer.status == 2
    assert f"--tokens and {option} both say how much is trained on" in answer.err
    for command in ("step", "memory"):
        assert f"do not change the answer: {option}" in run_line(f"{command} {line} -v").out


@pytest.mark.parametrize(
    ("line", "price", "gpus"),
    [
        ("--lora-rank 16 --hardware a100 --gpus 1", 1.71, 1),  # the median of 1.39, 1.59, 1.71, 2.79 and 3.43
        ("--lora-rank 16 --hardware a100 --gpus 1 --price 2", 2, 1),
        ("--lora-rank 16 --quantized nf4 --hardware 4090 --gpus 8", 0.39, 8),
        ("--lora-rank 16 --quantized nf4 --hardware 4090 --gpus 16", None, 16),  # sold as single machines of up to 8
        ("--lora-rank 16 --hardware h20 --gpus 1", None, 1),  # no seller is known
    ],
)
def test_fine_tuning_is_billed_at_what_sellers_ask(line: str, price: float | None, gpus: int) -> None:
    tuned = f"train-time llama3-8b --samples 52k --sample-tokens 350 --recompute full {line}"
    found = run_line(f"{tuned} --json")
    values = found.data["values"]
    assert values["gpu_hours"] == pytest.approx(values["time"] / 3600 * gpus)
    if price is None:
        assert "cost" not in values
        assert "price" not in found.data["inputs"]
        return
    assert values["cost"] == pytest.approx(values["gpu_hours"] * price)
    asked = "--price" not in line
    assert found.data["inputs"]["price"]["origin"] == ("evidence" if asked else "given")
    low, high = found.data["low"]["cost"] / values["cost"], found.data["high"]["cost"] / values["cost"]
    hours = [found.data[end]["gpu_hours"] / values["gpu_hours"] for end in ("low", "high")]
    ends = {1.71: (1.39, 3.43), 0.39: (0.34, 0.74), 2: (2, 2)}[price]
    assert (low, high) == pytest.approx([hour * end / price for hour, end in zip(hours, ends, strict=True)])
    assert ("a GPU-hour, 2026-09" in run_line(tuned).out) == asked


def test_commands_bill_a_run_alike_and_only_fine_tuning() -> None:
    tuned = "llama3-8b --task sft --lora-rank 16 --samples 52k --sample-tokens 350 --hardware a100 --gpus 2"
    row = run_line(f"plan {tuned} --json").data["rows"][0]
    assert row["cost"] == pytest.approx(row["gpu_hours"] * 1.71)
    learned = "train-time qwen2.5-7b --task grpo --gpus 8 --hardware h100 --steps 200 --prompt-tokens 512"
    values = run_line(
        f"{learned} --response-tokens 2048 --samples-per-prompt 8 --global-batch 128 --trainer verl --json"
    ).data["values"]
    assert values["cost"] == pytest.approx(values["gpu_hours"] * 3.67)
    searched = f"plan qwen2.5-7b {learned.partition('2.5-7b')[2]} --response-tokens 2048 --samples-per-prompt 8"
    values = run_line(f"{searched} --global-batch 128 --trainer verl --json").data["values"]
    assert values["cost"] == pytest.approx(values["gpu_hours"] * 3.67)
    assert "cost" not in run_line("train-time llama3-8b --tokens 1T --hardware a100 --gpus 64 --json").data["values"]
