"""Fields of encoders."""

from __future__ import annotations

import random
from typing import Any

from special_configs.common import decoder_tokens, known, special


@special("mra")
def _mra(rng: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
    """Draw few or all blocks of 32 tokens, of heads that are padded to 32 elements or are not."""
    heads, size = rng.choice((2, 4)), rng.choice((8, 32, 40))
    blocks = {"block_per_row": rng.choice((1, 2, 4)), "max_position_embeddings": rng.choice((64, 96, 128))}
    chosen = {"initial_prior_first_n_blocks": rng.choice((0, 1)), "initial_prior_diagonal_n_blocks": rng.choice((0, 1))}
    width = {"num_attention_heads": heads, "hidden_size": heads * size}
    return blocks | chosen | width | {"approx_mode": rng.choice(("full", "sparse")), "add_cross_attention": False}


@special("convbert")
def _convbert(rng: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
    """Draw heads of which a part, or all but one, is a convolution's."""
    heads, size = rng.choice((4, 6)), rng.choice((8, 12))
    width = {"num_attention_heads": heads, "hidden_size": heads * size, "intermediate_size": rng.choice((72, 144))}
    embedded = {"embedding_size": rng.choice((heads * size, 24))}
    mixed = {"head_ratio": rng.choice((1, 2, 8)), "conv_kernel_size": rng.choice((3, 9))}
    return width | embedded | mixed | {"num_groups": rng.choice((1, 2)), "is_decoder": False}


@special("big_bird", "bigbird_pegasus")
def _blocks(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"block_size": rng.choice((2, 4, 64)), "num_random_blocks": rng.choice((1, 2))}


@special("xmod")
def _languages(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"languages": rng.choice((["en_XX"], ["en_XX", "de_DE", "fr_XX"])), "default_language": "en_XX"}
    return own | {"pre_norm": False, "adapter_layer_norm": False}


@special("xlnet")
def _one_stream(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"d_inner": rng.choice((72, 104)), "ff_activation": rng.choice(("gelu", "relu"))}
    return own | {"attn_type": rng.choice(("bi", "uni")), "bi_data": False, "use_mems_train": False}


@special("albert", "electra")
def _narrow_tokens(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    groups = {"num_hidden_groups": rng.choice((1, 2)), "inner_group_num": rng.choice((1, 2))}
    return {"embedding_size": rng.choice((drawn["hidden_size"], 40)), "tie_word_embeddings": True} | (
        groups if drawn["model_type"] == "albert" else {}
    )


@special("bert", "camembert", "data2vec-text", "megatron-bert", "roberta", "roberta-prelayernorm", "xlm-roberta")
@special("distilbert", "gte", "jina_embeddings_v3", "mpnet", "nomic_bert", "xlm-roberta-xl")
def _tied(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return known(drawn, {"tie_word_embeddings": True, "is_decoder": False, "tie_weights_": True})


@special("esm")
def _proteins(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {
        "position_embedding_type": rng.choice(("absolute", "rotary")),
        "token_dropout": rng.random() < 0.5,
    }
    own |= {"emb_layer_norm_before": rng.random() < 0.5, "is_folding_model": False, "pad_token_id": 1}
    return _tied(rng, drawn) | own | {"mask_token_id": 4, "vocab_size": rng.choice((97, 160))}


@special("longformer", "led")
def _bands(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers = drawn.get("num_hidden_layers") or drawn["encoder_layers"]
    window = rng.choice((8, 16, [rng.choice((8, 16)) for _ in range(layers)]))
    lengths = dict.fromkeys(("max_position_embeddings", "max_encoder_position_embeddings"), 256)
    own = {"attention_window": window, "onnx_export": False, "tie_word_embeddings": True} | lengths
    if drawn["model_type"] == "led":
        own |= decoder_tokens(rng, drawn) | {"max_decoder_position_embeddings": 128}
    return known(drawn, own)


@special("bert-generation")
def _either_way(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"tie_word_embeddings": True, "is_decoder": rng.random() < 0.5, "add_cross_attention": False}


@special("mobilebert")
def _bottlenecks(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    hidden, shared, between = drawn["hidden_size"], rng.random() < 0.5, rng.random() < 0.8
    own: dict[str, Any] = {
        "key_query_shared_bottleneck": shared,
        "use_bottleneck_attention": not shared,
        "use_bottleneck": between,
    }
    own |= {"intra_bottleneck_size": 2 * drawn["num_attention_heads"], "embedding_size": hidden // 2}
    own |= {"num_feedforward_networks": rng.choice((1, 2, 4)), "trigram_input": rng.random() < 0.5}
    return _tied(rng, drawn) | own | {"normalization_type": rng.choice(("no_norm", "layer_norm"))}


@special("rembert", "roformer")
def _narrow_input(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    narrow = rng.choice((drawn["hidden_size"], 40))
    if drawn["model_type"] == "roformer":
        return _tied(rng, drawn) | {"embedding_size": narrow, "rotary_value": False}
    return {"input_embedding_size": narrow, "output_embedding_size": rng.choice((48, 72)), "tie_word_embeddings": False}


@special("ernie")
def _no_tasks(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return _tied(rng, drawn) | {"use_task_id": False}


@special("modernbert", "modernbert-decoder")
def _locally(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    for name in ("layer_types", "sliding_window"):
        drawn.pop(name, None)
    return {"local_attention": rng.choice((8, 128)), "global_attn_every_n_layers": rng.choice((1, 2, 3))}


@special("deberta")
def _distances_one_by_one(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    kinds = rng.choice((["c2p", "p2c"], ["p2c"], ["c2p"]))
    own = {"relative_attention": rng.random() < 0.8, "pos_att_type": kinds, "legacy": True}
    own |= {"max_relative_positions": rng.choice((-1, 12, 512)), "type_vocab_size": rng.choice((0, 2))}
    return own | {"position_biased_input": rng.random() < 0.5, "tie_word_embeddings": True}


@special("deberta-v2")
def _distances(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16}
    own |= {"max_relative_positions": -1, "share_att_key": True, "norm_rel_ebd": "layer_norm", "legacy": True}
    own |= {"position_biased_input": rng.random() < 0.5, "type_vocab_size": 0, "tie_word_embeddings": True}
    return own | {"conv_kernel_size": rng.choice((0, 3)), "conv_act": "gelu"}


@special("esmc")
def _all_heads(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"num_key_value_heads": drawn["num_attention_heads"], "tie_word_embeddings": False}


@special("ultrabert")
def _windows_both_ways(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    drawn.pop("layer_types", None)
    listed = [rng.choice(("full_attention", "sliding_attention")) for _ in range(drawn["num_hidden_layers"])]
    own = {"layer_types": listed, "sliding_window": rng.choice((8, 4096))}
    return own | {"prediction_head_size": rng.choice((40, 56))}


@special("luke")
def _entities(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"entity_vocab_size": 50, "entity_emb_size": rng.choice((16, drawn["hidden_size"]))}
