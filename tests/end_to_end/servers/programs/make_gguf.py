"""Writes the tiny model as llama.cpp reads it: `python make_gguf.py FOLDER` makes FOLDER/tiny.gguf."""

import json
import sys
from pathlib import Path

import gguf
import tiny

# What the Transformers library calls a tensor, and what llama.cpp does.
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def main(folder: Path) -> None:
    words = tiny.tokenizer()
    writer = gguf.GGUFWriter(str(folder / "tiny.gguf"), "llama")
    _shape(writer)
    _vocabulary(writer, words)
    for name, values in tiny.weights(words).items():
        writer.add_tensor(_gguf_name(name), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _shape(writer: gguf.GGUFWriter) -> None:
    writer.add_name("tiny")
    writer.add_context_length(tiny.TRAINED_WITH)
    writer.add_embedding_length(tiny.WIDTH)
    writer.add_block_count(tiny.LAYERS)
    writer.add_feed_forward_length(tiny.INNER)
    writer.add_head_count(tiny.HEADS)
    writer.add_head_count_kv(tiny.HEADS)
    writer.add_layer_norm_rms_eps(tiny.EPSILON)
    writer.add_rope_dimension_count(tiny.WIDTH // tiny.HEADS)
    writer.add_rope_freq_base(tiny.ROPE_BASE)
    writer.add_vocab_size(tiny.VOCABULARY)


def _vocabulary(writer: gguf.GGUFWriter, words) -> None:
    tokens = [words.id_to_token(at) for at in range(tiny.VOCABULARY)]
    kinds = [gguf.TokenType.CONTROL if token in tiny.SPECIAL else gguf.TokenType.NORMAL for token in tokens]
    merges = json.loads(words.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_eos_token_id(words.token_to_id(tiny.END_TURN))
    writer.add_add_bos_token(value=False)
    writer.add_chat_template(tiny.TEMPLATE)


def _gguf_name(name: str) -> str:
    plain = name.removesuffix(".weight")
    if plain.startswith("model.layers."):
        _, _, layer, part = plain.split(".", 3)
        return f"blk.{layer}.{NAMES[part]}.weight"
    return f"{NAMES[plain]}.weight"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
