"""A model of our own making, small enough to be made in seconds: random weights, a real tokenizer, a chat template.

It runs in a server's environment and needs nothing but numpy and tokenizers. Its tokenizer learns from this project's
own files, so that their text takes about as many tokens as with any other. It says plain words and never ends by
itself: how long an answer is, the request decides.
"""

import re
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = Path(__file__).parents[4]
VOCABULARY = 4096
END, BEGIN_TURN, END_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END, BEGIN_TURN, END_TURN)
TRAINED_WITH = 131_072  # what it could read, by its own account; what a server gives it is less

WIDTH, INNER, LAYERS, HEADS = 64, 128, 2, 4
ROPE_BASE, EPSILON = 10_000.0, 1e-5

TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>\\n' }}{% endif -%}
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['content'] %}{{ message['content'] }}{% endif -%}
{%- if message['tool_calls'] %}{% for call in message['tool_calls'] -%}
{{ '\\n' + call['function']['name'] + ' ' + (call['function']['arguments'] | tojson) }}
{%- endfor %}{% endif -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}"""


def tokenizer() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    files = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("proxy/**/*.py")])
    made.train_from_iterator((path.read_text() for path in files), trainer)
    return made


def weights(words: Tokenizer) -> dict[str, np.ndarray]:
    """By the names that the Transformers library has for them."""
    random = np.random.default_rng(7)

    def random_weights(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * 0.05).astype(np.float32)

    made = {"model.embed_tokens.weight": random_weights(VOCABULARY, WIDTH), "model.norm.weight": _ones(WIDTH)}
    made["lm_head.weight"] = random_weights(VOCABULARY, WIDTH) * _sayable(words)[:, None]
    for layer in range(LAYERS):
        made |= {f"model.layers.{layer}.{name}": value for name, value in _layer(random_weights).items()}
    return made


def _layer(random_weights) -> dict[str, np.ndarray]:
    attention = {f"self_attn.{name}_proj.weight": random_weights(WIDTH, WIDTH) for name in "qkvo"}
    norms = {f"{name}_layernorm.weight": _ones(WIDTH) for name in ("input", "post_attention")}
    inner = {f"mlp.{name}_proj.weight": random_weights(INNER, WIDTH) for name in ("gate", "up")}
    return {**attention, **norms, **inner, "mlp.down_proj.weight": random_weights(WIDTH, INNER)}


def _ones(size: int) -> np.ndarray:
    return np.ones(size, np.float32)


def _sayable(words: Tokenizer) -> np.ndarray:
    """1 for a plain word, 0 for all else: half a character would be held back, and an end would end it."""
    text = (words.id_to_token(at) or "" for at in range(VOCABULARY))
    return np.array([re.fullmatch("Ġ[A-Za-z]+", word) is not None for word in text], np.float32)
