"""How far a long command has come: one line on a terminal, drawn over and over, and nothing anywhere else."""

from dataclasses import dataclass
from time import monotonic
from typing import TextIO

_WIDTH = 30
_EVERY = 0.1
_MINUTE = 60


@dataclass(slots=True)
class Bar:
    """Called each time something is done."""

    out: TextIO
    what: str
    began: float = 0.0
    known: int = 0
    """How many were done before this run."""
    drawn: float = 0.0

    def __call__(self, done: int, of: int) -> None:
        now = monotonic()
        if not self.began:
            self.began, self.known = now, done
        if self.out.isatty() and (now - self.drawn >= _EVERY or done == of):
            self.drawn = now
            self.out.write(f"\r{line(done, of, self.what)}{self._left(now, done, of)}\x1b[K" + "\n" * (done == of))
            self.out.flush()

    def _left(self, now: float, done: int, of: int) -> str:
        if not self.known < done < of:
            return ""
        seconds = round((now - self.began) * (of - done) / (done - self.known))
        return f", {seconds // _MINUTE}:{seconds % _MINUTE:02} left"


def line(done: int, of: int, what: str) -> str:
    full = _WIDTH * done // of if of else _WIDTH
    return f"[{'#' * full}{'.' * (_WIDTH - full)}] {done:,} of {of:,} {what}"
