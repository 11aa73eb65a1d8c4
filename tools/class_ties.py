"""Which value of tie_word_embeddings each multimodal class follows: its own, its language model's, or neither.

Both levels of a config.json may state it. Every class is built on the meta device with each pair of values, absent,
true and false, and what its head shares is seen in the class; the rule that explains all nine is written.

    hf/bin/python tools/class_ties.py                write the table that napkin reads, and the cases of the tests
    hf/bin/python tools/class_ties.py llava blip     what these classes do
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import warnings
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

import torch  # noqa: E402
import transformers  # noqa: E402
from class_source import heads_of  # noqa: E402
from transformers import CONFIG_MAPPING, PreTrainedModel  # noqa: E402
from transformers.initialization import no_init_weights  # noqa: E402

from napkin.architectures import WRAPPERS, wrapper_of  # noqa: E402

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()

TABLE = ROOT / "src" / "napkin" / "_tables" / "class_ties.py"
CASES = ROOT / "tests" / "data" / "class_ties.json"
FIELD = "tie_word_embeddings"
STATED = (None, True, False)
"""What a level of a config.json says."""
DEPTH = ("num_hidden_layers", "depth", "num_layers", "encoder_layers", "decoder_layers", "layers")
_EIGHT = {"num_hidden_layers": 2, "head_dim": 8, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
_ROPE = {"rope_type": "default", "rope_theta": 1e4}
_STEPS = {"time_step_limit": [0.0, 1e9]}
_VISION = {"hidden_size": 48, "num_attention_heads": 3, "intermediate_size": 48}
SMALL: dict[str, dict[str, Any]] = {
    "aya_vision": {"vision_config": _VISION},
    "cohere_compass": {"text_config": {"rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE}}},
    "deepseek_ocr2": {"text_config": {"num_hidden_layers": 2, "mlp_layer_types": ["dense", "sparse"]}},
    "diffusion_gemma": {"text_config": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8}},
    "emu3": {"vocabulary_map": {"<|extra_200|>": 1}, "pad_token_id": 0},
    "gemma3n": {"text_config": {"num_kv_shared_layers": 0}},
    "granite4_vision": {"deepstack_layer_map": [[0, 0]], "spatial_target_layers": [0], "downsample_rate": "4/8"},
    "hunyuan_vl": {"text_config": _EIGHT},
    "nemo_speechlm": {"text_config": _STEPS},
    "nemotron_h_omni": {"text_config": _STEPS},
    "perception_lm": {"vision_config": {"model_args": {"embed_dim": 32}}},
}  # fmt: skip
"""What the default configurations of some classes lack to be built."""
WHOLE = ("inkling_mm_model",)
"""Classes whose towers have the depth that their images' size asks for."""
UNBUILT = tuple(name for name in WRAPPERS if (one := wrapper_of(name)) is not None and (one.refused or one.within[0]))
"""Classes that napkin refuses, and those whose language model is in another one's block."""


def _without_tower(self: Any, config: Any, *_: Any, **__: Any) -> None:
    """Build a tower of timm's, which is not installed, as nothing: it has no word embeddings."""
    PreTrainedModel.__init__(self, config)


def built(model_type: str, outer: bool | None, inner: bool | None) -> Any:
    """Return the class with few layers, without weights, where the levels of its config say so."""
    fields = json.loads(CONFIG_MAPPING[model_type]().to_json_string())
    for block, more in SMALL.get(model_type, {}).items():
        fields[block] = {**fields[block], **more} if isinstance(fields.get(block), dict) else more
    for level, stated in ((fields, outer), (fields.get("text_config"), inner)):
        if level is not None:
            level.pop(FIELD, None)
            level.update({} if stated is None else {FIELD: stated})
    heads = heads_of(model_type)  # of which some are the language model's own
    config = CONFIG_MAPPING[model_type].from_dict(fields)
    if model_type not in WHOLE:
        shallow(config)
    with torch.device("meta"), no_init_weights():
        head = next((one for one in heads if isinstance(config, one.config_class)), heads[-1])
        model = head._from_config(config)
    model.tie_weights()
    return model


def shallow(config: Any) -> None:
    """Give a configuration, and those within it, two layers at most."""
    for name in DEPTH:
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 2:
            setattr(config, name, 2)
    for name in config.sub_configs or {}:
        within = getattr(config, name, None)
        if within is not None and hasattr(within, "sub_configs"):
            shallow(within)


def ties(model: Any) -> bool:
    """Return whether the weights of the head have another name too."""
    parts = (part for part in model.modules() if isinstance(part, PreTrainedModel))
    head = next(one for part in parts if (one := part.get_output_embeddings()) is not None)
    return sum(weight is head.weight for _, weight in model.named_parameters(remove_duplicate=False)) > 1


def seen(model_type: str) -> str:
    """Return nine letters, T where the class ties: by what the outer level says, and for each the text's."""
    return "".join("TF"[not ties(built(model_type, *pair))] for pair in product(STATED, STATED))


def rule_of(letters: str) -> tuple[str, bool]:
    """Return what explains the nine letters: the rule, and the value of the outer level if it states none.

    own      the outer level's value
    either   tied if one of both levels says so
    first    the outer level's, and the text's if it states none
    text     the text's
    never    whatever both say
    """
    rows = [letters[i : i + 3] for i in (0, 3, 6)]
    text = rows[2]  # what the class does if the outer level says no
    explained = {
        ("never", False): ["FFF", "FFF", "FFF"],
        ("own", True): ["TTT", "TTT", "FFF"],
        ("own", False): ["FFF", "TTT", "FFF"],
        ("text", False): [text, text, text],
        ("either", True): ["TTT", "TTT", text],
        ("either", False): [text, "TTT", text],
        ("first", False): [rows[0], "TTT", "FFF"],
    }
    return next(rule for rule, expected in explained.items() if rows == expected)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("types", nargs="*", help="model types that are shown; without any the table is written")
    asked = parser.parse_args()
    module = importlib.import_module("transformers.models.timm_wrapper.modeling_timm_wrapper")
    module.TimmWrapperModel.__init__ = _without_tower
    known = [name for name in sorted(WRAPPERS) if name in CONFIG_MAPPING and name not in UNBUILT]
    text = (
        '"""Generated by tools/class_ties.py from the classes themselves."""\n\nfrom __future__ import annotations\n\n'
    )
    text += "# multimodal model_type → the rule, and the outer level's value where it states none\n"
    text += "TIES: dict[str, tuple[str, bool]] = {\n"
    rows: dict[str, str] = {}
    for model_type in asked.types or known:
        try:
            letters = seen(model_type)
        except Exception as problem:
            print(model_type, "not built:", type(problem).__name__, str(problem)[:200], flush=True)
            continue
        print(model_type, letters, *rule_of(letters), flush=True)
        text += f"    {model_type!r}: {rule_of(letters)},\n"
        rows[model_type] = letters
    if not asked.types:
        TABLE.write_text(text + "}\n", encoding="utf-8")
        about = f"Whether classes of transformers {transformers.__version__} tie, seen by tools/class_ties.py."
        CASES.write_text(
            json.dumps({"about": about, "stated": STATED, "rows": rows}, indent=1) + "\n", encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
