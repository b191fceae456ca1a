"""Whether originals are written before a lossy act, and whether it may happen without: one truth table.

A *lossy act* makes a new block. The policy says how much its original is worth (`Originals`); the table makes that
a duty for one request, and `may_fold_unwritten` decides if the write fails.

                 a new block,          a new block,           a block that is
                 of a known caller     of an unknown caller   applied again
    OFF          nothing               nothing                nothing
    BEST_EFFORT  write                 nothing                hand over
    TO_FIT       write                 check                  hand over
    BEFORE_LOSS  write                 check                  hand over
    REQUIRED     write or refuse       write or refuse        write or refuse

A caller is unknown until an upstream has accepted one of its requests. Nothing is stored for it before, because
made-up keys could fill a disk. Once it is accepted, its row is that of a known caller.
"""

from enum import Enum, auto


class Originals(Enum):
    """How much the original of a shortened history is worth."""

    OFF = auto()
    """No originals are kept."""
    BEST_EFFORT = auto()
    """Shorten in any case (`without_originals: always`)."""
    TO_FIT = auto()
    """Without the original, shorten only a request that does not fit (`without_originals: to_fit`)."""
    BEFORE_LOSS = auto()
    """Without the original, shorten nothing (`without_originals: never`)."""
    REQUIRED = auto()
    """Without the original, refuse the request (`transcripts.required`)."""


class Writing(Enum):
    """What has to be done about the original of one request."""

    NOTHING = auto()
    CHECK = auto()
    """Find out whether originals can be written: this one is handed over once the upstream has accepted its caller."""
    HAND_OVER = auto()
    """Hand the history over, without waiting until it is written."""
    WRITE = auto()
    """Wait until it is written."""
    WRITE_OR_REFUSE = auto()
    """Wait until it is written, and refuse the request if that fails."""


_NEW_BLOCK = {
    Originals.OFF: Writing.NOTHING,
    Originals.BEST_EFFORT: Writing.WRITE,
    Originals.TO_FIT: Writing.WRITE,
    Originals.BEFORE_LOSS: Writing.WRITE,
    Originals.REQUIRED: Writing.WRITE_OR_REFUSE,
}
_NEW_BLOCK_OF_UNKNOWN_CALLER = {
    **_NEW_BLOCK,
    Originals.BEST_EFFORT: Writing.NOTHING,
    Originals.TO_FIT: Writing.CHECK,
    Originals.BEFORE_LOSS: Writing.CHECK,
}
_APPLIED_BLOCK = {
    Originals.OFF: Writing.NOTHING,
    Originals.BEST_EFFORT: Writing.HAND_OVER,
    Originals.TO_FIT: Writing.HAND_OVER,
    Originals.BEFORE_LOSS: Writing.HAND_OVER,
    Originals.REQUIRED: Writing.WRITE_OR_REFUSE,
}


def choose_originals(*, is_kept: bool, is_required: bool, without_originals: str) -> Originals:
    """Return the row of the table for a policy (`transcripts`, `without_originals`) and a worker (`required`)."""
    if not is_kept:
        return Originals.OFF
    if is_required:
        return Originals.REQUIRED
    rows = {"always": Originals.BEST_EFFORT, "to_fit": Originals.TO_FIT, "never": Originals.BEFORE_LOSS}
    return rows[without_originals]


def choose_writing(originals: Originals, *, is_new_block: bool, is_known_caller: bool) -> Writing:
    """Return the duty to fulfil before a shortened history is forwarded."""
    if not is_new_block:
        return _APPLIED_BLOCK[originals]
    if is_known_caller:
        return _NEW_BLOCK[originals]
    return _NEW_BLOCK_OF_UNKNOWN_CALLER[originals]


def may_fold_unwritten(originals: Originals, *, is_new_block: bool, fits: bool) -> bool:
    """Return True if a history may be shortened although its original could not be written."""
    if not is_new_block or originals in (Originals.OFF, Originals.BEST_EFFORT):
        return True
    return originals is Originals.TO_FIT and not fits
