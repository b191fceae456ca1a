"""Reads JSON objects as structs: fast, and of what clients send beyond strict JSON, too."""

import json
from collections.abc import Callable, Iterator
from typing import ClassVar, TypeVar

import msgspec

from proxy.history import splice

S = TypeVar("S", bound=msgspec.Struct)


class TextFields(msgspec.Struct):
    """A struct with members that may be of any kind: those in `TEXTS` are empty if they are no texts."""

    TEXTS: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in self.TEXTS:
            if not isinstance(getattr(self, name), str):
                setattr(self, name, "")


def build_reader(struct: type[S]) -> Callable[[bytes], S]:
    """A function that reads this struct from JSON.

    The fast parser refuses half of a surrogate pair, which clients in JavaScript send if they cut a text in two.
    """
    decoder = msgspec.json.Decoder(struct)

    def read(raw: bytes) -> S:
        try:
            return decoder.decode(raw)
        except msgspec.MsgspecError:
            return struct(**dict(_read_fields(struct, raw)))

    return read


def _read_fields(struct: type[msgspec.Struct], raw: bytes) -> Iterator[tuple[str, object]]:
    value = json.loads(raw)
    if not isinstance(value, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - one of many wrong values
    for struct_field in msgspec.structs.fields(struct):
        member = None
        if struct_field.name in value:
            member = splice.find_member(raw, struct_field.name)
        if member is not None and struct_field.type is msgspec.Raw:
            yield struct_field.name, msgspec.Raw(raw[member.start : member.stop])
        elif member is not None:
            yield struct_field.name, msgspec.convert(value[struct_field.name], struct_field.type)
        elif struct_field.required:
            raise ValueError(f"it has no {struct_field.name}")
