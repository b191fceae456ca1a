"""Writes the tiny model as the Transformers library reads it: `python make_folder.py FOLDER` fills FOLDER."""

import json
import sys
from pathlib import Path

import tiny
from safetensors.numpy import save_file


def main(folder: Path) -> None:
    words = tiny.tokenizer()
    save_file(tiny.weights(words), folder / "model.safetensors", metadata={"format": "pt"})
    words.save(str(folder / "tokenizer.json"))
    ends = {"eos_token": tiny.END_TURN, "pad_token": tiny.END}
    written = {
        "config.json": _shape(words.token_to_id(tiny.END_TURN)),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "chat_template": tiny.TEMPLATE,
            "clean_up_tokenization_spaces": False,
            **ends,
        },
    }
    for name, value in written.items():
        (folder / name).write_text(json.dumps(value))


def _shape(end: int) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": tiny.WIDTH,
        "intermediate_size": tiny.INNER,
        "num_hidden_layers": tiny.LAYERS,
        "num_attention_heads": tiny.HEADS,
        "num_key_value_heads": tiny.HEADS,
        "rms_norm_eps": tiny.EPSILON,
        "rope_theta": tiny.ROPE_BASE,
        "vocab_size": tiny.VOCABULARY,
        "max_position_embeddings": tiny.TRAINED_WITH,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "eos_token_id": end,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
