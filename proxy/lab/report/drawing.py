"""The pictures, as SVG that needs no script and no fixed width: lines stretch with the page, words keep their size.

So heights are pixels, widths are percents, and the labels of the scale stand within the picture, on its lines.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from proxy.lab.replay.values import Point
from proxy.lab.report.markup import Markup, element, joined
from proxy.lab.report.numbers import whole

HEIGHT, TOP, BOTTOM = 240, 14, 22
"""Of the whole picture, of the space above the scale, and of that below it."""
MOST = 500
"""Requests in one picture; of more, the highest and the lowest of each stretch stand for it."""
_STEPS = (1, 2, 2.5, 5, 10)
_MARK = 12
_UPWARDS, _DOWNWARDS = "M0 1l5.5 9.5h-11z", "M0 -1l5.5 -9.5h-11z"
_ROOM_ABOVE = 1.6
"""A window that lies so many times higher than everything else would press it flat: then it is named only."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From requests and tokens to places in the picture."""

    requests: int
    top: float
    """Tokens at the upper edge."""

    def across(self, number: int) -> float:
        """Percent of the width."""
        return 100 * number / max(1, self.requests - 1)

    def down(self, tokens: float) -> float:
        """Pixels from above."""
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * tokens / self.top


def thinned(points: Sequence[Point]) -> list[tuple[int, Point]]:
    """The requests to draw, each with its number."""
    numbered = list(enumerate(points))
    if len(numbered) <= MOST:
        return numbered
    width = len(numbered) / (MOST // 2)
    kept: dict[int, Point] = {0: points[0], len(points) - 1: points[-1]}
    for start in range(MOST // 2):
        stretch = numbered[int(start * width) : int((start + 1) * width)]
        kept |= dict((min(stretch, key=_size), max(stretch, key=_size)))
    kept |= {number: point for number, point in numbered if point.rewrote}
    return sorted(kept.items())


def tokens_over_time(points: Sequence[Point], window: int, about: str) -> Markup:
    """Raw and forwarded, request by request, below the window; each rewrite with a mark."""
    drawn = thinned(points)
    highest = max(max(point.raw, point.forwarded) for point in points)
    shown = window if window <= _ROOM_ABOVE * highest else 0
    scale = Scale(len(points), max(highest, shown) * 1.04 or 1.0)
    raw = [(scale.across(number), scale.down(point.raw)) for number, point in drawn]
    ours = [(scale.across(number), scale.down(point.forwarded)) for number, point in drawn]
    lines = element(
        "svg",
        element("polygon", points=_spots([*raw, *reversed(ours)]), class_="wash"),
        element("polyline", points=_spots(raw), class_="raw"),
        element("polyline", points=_spots(ours), class_="ours"),
        viewBox=f"0 0 100 {HEIGHT}",
        preserveAspectRatio="none",
        width="100%",
        height=HEIGHT,
    )
    limit = _window(shown, scale) if shown else Markup()
    parts = (_grid(scale), lines, limit, *_marks(points, drawn, scale), _axis(scale))
    title = element("title", about)
    return element("svg", title, *parts, class_="chart", role="img", height=HEIGHT, width="100%")


def gauge(share: float, told: str, full: float = 1.0, kind: str = "fill") -> Markup:
    """A share of a whole as a bar, and beside it the number that the bar stands for."""
    filled = f"{100 * min(1.0, max(0.0, share / full)):.2f}%"
    parts = (
        element("rect", class_="rail", width="100%", height="100%", rx="3"),
        element("rect", class_=kind, width=filled, height="100%", rx="3"),
    )
    drawn = element("svg", *parts, class_="bar", aria_hidden="true", focusable="false")
    return element("div", drawn, element("span", told), class_="gauge")


def swatch(kind: str) -> Markup:
    """How a line looks, for the legend."""
    if kind == "mark":
        shape = element("path", d="M12 2l5.5 9.5h-11z", class_="mark")
    else:
        shape = element("line", x1="0", y1="6.5", x2="24", y2="6.5", class_=kind)
    return element("svg", shape, viewBox="0 0 24 13", aria_hidden="true", focusable="false")


def ticks(top: float, most: int = 4) -> list[float]:
    """Round numbers up to the top."""
    rough = top / most
    size = 10 ** (len(str(int(rough))) - 1)
    step = next((size * each for each in _STEPS if size * each >= rough), size * 10)
    return [step * number for number in range(1, int(top / step) + 1)]


def _grid(scale: Scale) -> Markup:
    rows = [element("line", class_="base", x1="0", x2="100%", y1=scale.down(0), y2=scale.down(0))]
    for tokens in ticks(scale.top):
        height = scale.down(tokens)
        rows.append(element("line", class_="grid", x1="0", x2="100%", y1=height, y2=height))
    return joined(*rows)


def _axis(scale: Scale) -> Markup:
    """Labels last, so that nothing crosses them."""
    labels = [
        element("text", whole(int(tokens)), class_="label", x="0", y=scale.down(tokens) - 4)
        for tokens in ticks(scale.top)
    ]
    labels.append(element("text", "request 1", x="0", y=HEIGHT - 6))
    if scale.requests > 1:
        labels.append(element("text", whole(scale.requests), x="100%", y=HEIGHT - 6, text_anchor="end"))
    return joined(*labels)


def _window(window: int, scale: Scale) -> Markup:
    height = scale.down(window)
    words = element("text", f"window {whole(window)}", class_="label over", x="100%", y=height - 5, text_anchor="end")
    return joined(element("line", class_="limit", x1="0", x2="100%", y1=height, y2=height), words)


def _marks(points: Sequence[Point], drawn: Iterable[tuple[int, Point]], scale: Scale) -> Iterator[Markup]:
    """Below the line, where it is not too low for that."""
    for number, point in drawn:
        if not point.rewrote:
            continue
        why = f" ({point.reason})" if point.reason else ""
        before = whole(points[number - 1].forwarded) if number else "nothing"
        told = f"request {number + 1}{why}: {before} tokens before, {whole(point.forwarded)} now"
        down = scale.down(point.forwarded)
        shape = _UPWARDS if down + _MARK < HEIGHT - BOTTOM else _DOWNWARDS
        drawn_mark = element("path", element("title", told), d=shape, class_="mark")
        yield element("svg", drawn_mark, x=f"{scale.across(number):.2f}%", y=down, overflow="visible")


def _spots(spots: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{across:.2f},{down:.1f}" for across, down in spots)


def _size(numbered: tuple[int, Point]) -> int:
    return numbered[1].forwarded
