"""Sentences that are in no list of the proxy: overflows in other words, and errors that only sound like one.

Each comes in two halves. `TUNED` was looked at while the words and weights of `proxy/wire/refusals.py` were chosen;
`UNSEEN` was written afterwards and scored once: 11 of its 12 overflows were read right, and none of its 9 others was
taken for one. To change a weight, look at the first half only.
"""

from pathlib import Path

_LINES = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8").splitlines()


def _read(name: str) -> tuple[tuple[str, str], ...]:
    """The kind or status and the sentence of each line of this list."""
    rows = [line.split("\t") for line in _LINES]
    return tuple((kind, sentence) for of, kind, sentence in rows if of == name)


TUNED, UNSEEN = _read("TUNED"), _read("UNSEEN")
INNOCENT, INNOCENT_UNSEEN = (
    tuple((int(status), sentence) for status, sentence in _read(name)) for name in ("INNOCENT", "INNOCENT_UNSEEN")
)
