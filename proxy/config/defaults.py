"""Writes the shipped proxy.yaml (`check --defaults`) and its JSON Schema (`check --schema`) from the settings.

Editors complete and explain settings by the schema (https://json-schema.org).
"""

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from textwrap import dedent, wrap
from typing import Any, get_args

import yaml
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from proxy.config.policies import Prompt
from proxy.config.settings import Config


def as_yaml() -> str:
    lines = [
        "# The settings of compaction-proxy with their defaults. No file is needed: set what you want to change.",
        "# A variable COMPACTION_PROXY_<PATH> overrides the file, with two underscores between levels:",
        "#   COMPACTION_PROXY_LISTEN__PORT=9000   COMPACTION_PROXY_UPSTREAMS__0__KEY=env:OPENAI_API_KEY",
        "# `compaction-proxy check proxy.yaml` reports everything that is wrong with a file.",
    ]
    for name, value in Config():
        lines += ["", *_section(name, value)]
    return "\n".join(lines) + "\n"


def _section(name: str, value: Any) -> Iterator[str]:  # noqa: ANN401 (a group, or several)
    if not value:
        yield from _empty_section(name, value)
    elif isinstance(value, tuple):
        yield f"{name}:"
        for entry in value:
            yield from _comment(_sentence(entry), "  ")
            lines = list(_settings(entry, "    "))
            first = next(index for index, line in enumerate(lines) if not line.lstrip().startswith("#"))
            lines[first] = "  - " + lines[first].lstrip()
            yield from lines
    elif isinstance(value, Mapping):
        yield f"{name}:"
        for key, entry in value.items():
            yield from _comment(_sentence(entry), "  ")
            yield f"  {key}:"
            yield from _settings(entry, "    ")
    else:
        yield from _comment(_sentence(value), "")
        yield f"{name}:"
        yield from _settings(value, "  ")


def _empty_section(name: str, value: Any) -> Iterator[str]:  # noqa: ANN401 (an empty list or mapping)
    field = Config.model_fields[name]
    empty, entry, model = "[]", "-", get_args(field.annotation)[0]
    if isinstance(value, Mapping):
        empty, entry, model = "{}", "NAME:", get_args(field.annotation)[1]
    yield from _comment(read_descriptions(Config).get(name, ""), "")
    yield f"{name}: {empty}"
    yield from _comment(f"  {entry} # {_sentence(model)}", "")
    descriptions = read_descriptions(model)
    for setting, setting_field in model.model_fields.items():
        default = _scalar(setting_field.default) if not setting_field.is_required() else "..."
        yield from _comment(descriptions.get(setting, ""), "#     ")
        yield f"#     {setting}: {default}"


def _settings(group: BaseModel, indent: str) -> Iterator[str]:
    values = group.model_dump(mode="json")
    descriptions = read_descriptions(type(group))
    for name, value in group:
        yield from _comment(descriptions.get(name, ""), indent)
        if isinstance(value, BaseModel):
            yield f"{indent}{name}:"
            yield from _settings(value, indent + "  ")
        else:
            yield f"{indent}{name}: {_scalar(values[name])}"


def _comment(text: str, indent: str) -> list[str]:
    mark = f"{indent}# "
    return wrap(text, 120, initial_indent=mark, subsequent_indent=mark, break_on_hyphens=False)


def _scalar(value: Any) -> str:  # noqa: ANN401 (any value that YAML writes on one line)
    # PyYAML wraps long values, and ends a plain one with `...`, the mark of the end of a document.
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()


def _sentence(group: BaseModel | type[BaseModel]) -> str:
    return " ".join((group.__doc__ or "").split())


def read_descriptions(model: type) -> dict[str, str]:
    """Return the docstrings below the settings, by the setting."""
    descriptions: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        descriptions |= _read_docstrings(vars(kind).get("declared_by") or kind)
    return descriptions


@cache
def _read_docstrings(kind: type) -> dict[str, str]:
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):  # not written in a file
        return {}
    (definition,) = ast.parse(dedent(source)).body
    descriptions = {}
    for statement, below in pairwise(getattr(definition, "body", ())):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                descriptions[name] = inspect.cleandoc(text)
    return descriptions


class _FileSchema(GenerateJsonSchema):
    def tuple_schema(self, schema: Any) -> JsonSchemaValue:  # noqa: ANN401 (a core schema of pydantic)
        # `ConfigModel` reads one text as a list of one.
        list_schema = super().tuple_schema(schema)
        items = list_schema.get("items", {})
        return {"anyOf": [list_schema, items]} if items.get("type") == "string" else list_schema

    def model_schema(self, schema: Any) -> JsonSchemaValue:  # noqa: ANN401 (a core schema of pydantic)
        group_schema = super().model_schema(schema)
        descriptions = read_descriptions(schema["cls"])
        for name, setting in group_schema.get("properties", {}).items():
            if name in descriptions:
                setting["description"] = descriptions[name]
        # A group whose settings are all commented out is null in YAML.
        return {**group_schema, "type": ["object", "null"]}

    def encode_default(self, dft: Any) -> Any:  # noqa: ANN401 (the default of any setting)
        return super().encode_default(str(dft) if isinstance(dft, Prompt) else dft)

    def field_title_should_be_set(self, _: Any) -> bool:  # noqa: ANN401 (a core schema of pydantic)
        return False


def as_json_schema() -> dict[str, Any]:
    dialect = {"$schema": GenerateJsonSchema.schema_dialect, "title": "proxy.yaml of compaction-proxy"}
    return {**Config.model_json_schema(schema_generator=_FileSchema), **dialect}
