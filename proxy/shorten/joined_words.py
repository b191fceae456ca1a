r"""Join the user's messages between which a fold leaves only separators: a model would read a row of these otherwise.

    in the block   user "Mend it."  [Separator]  user "Run the tests."  [Separator]  note
    forwarded      user "Mend it.\n\nRun the tests."                    [Separator]  note

Each text stays whole. The block holds the messages apart, so that the next fold can take them one by one.
"""

import json
from collections.abc import Sequence

from proxy.history import splice
from proxy.history.messages import JOINED, Message, make_literal
from proxy.shorten.fold import is_separator


def join_words(covered: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages of a block, with those of the user joined that only separators part.

    The last one stays apart: it may hold the newest words.
    """
    if not any(map(is_separator, covered)):
        return tuple(covered)
    last = None
    for message in covered:
        if message.is_user:
            last = message
    view: list[Message] = []
    words: list[Message] = []
    separators: list[Message] = []
    for message in covered:
        if words and is_separator(message):
            separators.append(message)
            continue
        may_join = message is not last and _may_join(message)
        if not (may_join and separators):
            view += [*_join(words), *separators]
            words = []
        separators = []
        if may_join:
            words.append(message)
        else:
            view.append(message)
    return (*view, *_join(words), *separators)


def _may_join(message: Message) -> bool:
    """Return whether a message is the user's text and nothing else: a name or a picture belongs to one message only."""
    if not message.is_user:
        return False
    if {member.key for member in splice.iterate_members(message.raw)} != {"role", "content"}:
        return False
    if message.is_text:
        return True
    parts = json.loads(message.content)
    return isinstance(parts, list) and all(part.get("type") in ("text", "input_text") for part in parts)


def _join(words: Sequence[Message]) -> list[Message]:
    if len(words) <= 1:
        return list(words)
    contents = [message.content for message in words]
    if all(content[:1] == b'"' for content in contents):
        content = b'"%b"' % b"\\n\\n".join(content[1:-1] for content in contents)
    else:
        content = b"[%b]" % b",".join(map(_list_parts, contents))
    raw = b'{"role":"user","content":%b}' % content
    return [make_literal(raw, words[0].start, words[-1].stop, JOINED)]


def _list_parts(content: bytes) -> bytes:
    if content[:1] == b'"':
        return b'{"type":"text","text":%b}' % content
    return content.strip()[1:-1]
