"""HTML by construction: text is escaped unless it is markup already, so nothing that a conversation says becomes any.

Names of sessions and policies are data from outside. They only ever come in as `str`, and only `element` makes
`Markup`.
"""

import html


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *within: "str | Markup", **attributes: str | float | None) -> Markup:
    """One element; an attribute of None is left away, `class_` and `aria_label` are written as HTML has them."""
    told = "".join(
        f' {_attribute(name)}="{html.escape(_figure(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{told}>{joined(*within)}</{tag}>")


def joined(*parts: "str | Markup") -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else html.escape(part, quote=False) for part in parts))


def table(
    caption: str, headings: "tuple[str | Markup, ...]", rows: "list[tuple[str | Markup, ...]]", kind: str = ""
) -> Markup:
    """A table that a screen reader can find its way in: each row begins with what it is about."""
    head = element("tr", *(element("th", each, scope="col") for each in headings))
    body = (
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    )
    whole = element(
        "table", element("caption", caption), element("thead", head), element("tbody", *body), class_=kind or None
    )
    return element("div", whole, class_="wide", tabindex="0", role="region", aria_label=caption)


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _figure(value: str | float | None) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
