"""Progress bar of long commands: one line on a terminal, redrawn; nothing where output is not a terminal."""

from dataclasses import dataclass
from time import monotonic
from typing import TextIO

_WIDTH_CHARACTERS = 30
_REDRAW_SECONDS = 0.1
_MINUTE_SECONDS = 60


@dataclass(slots=True)
class ProgressBar:
    """Progress bar, called with how many of how many are done."""

    out: TextIO
    what: str
    began: float = 0.0
    known: int = 0
    """Done before this run began."""
    drawn: float = 0.0

    def __call__(self, done: int, of: int) -> None:
        now = monotonic()
        if not self.began:
            self.began, self.known = now, done
        if self.out.isatty() and (now - self.drawn >= _REDRAW_SECONDS or done == of):
            self.drawn = now
            self.out.write(
                f"\r{draw_bar(done, of, self.what)}{self._time_left(now, done, of)}\x1b[K" + "\n" * (done == of)
            )
            self.out.flush()

    def _time_left(self, now: float, done: int, of: int) -> str:
        if not self.known < done < of:
            return ""
        seconds = round((now - self.began) * (of - done) / (done - self.known))
        return f", {seconds // _MINUTE_SECONDS}:{seconds % _MINUTE_SECONDS:02} left"


def draw_bar(done: int, of: int, what: str) -> str:
    full = _WIDTH_CHARACTERS * done // of if of else _WIDTH_CHARACTERS
    return f"[{'#' * full}{'.' * (_WIDTH_CHARACTERS - full)}] {done:,} of {of:,} {what}"
