"""The shipped proxy.yaml, written from the settings themselves: every setting, its default, one sentence.

`compaction-proxy check --defaults` prints it, and a test holds the file in the repository against it.
"""

from collections.abc import Mapping
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from proxy.config.settings import Config

_HEAD = """\
# Every setting of compaction-proxy with its default. No file is needed: set what you want to change.
# A variable COMPACTION_PROXY_<PATH> overrides the file, with two underscores between levels:
#   COMPACTION_PROXY_LISTEN__PORT=9000   COMPACTION_PROXY_UPSTREAMS__0__KEY=env:OPENAI_API_KEY
# `compaction-proxy check proxy.yaml` tells everything that is wrong with a file.
"""


def as_yaml() -> str:
    return _HEAD + "".join(_block(name, value) for name, value in Config())


def _block(name: str, value: Any) -> str:  # noqa: ANN401 (a block, or a list of blocks)
    if not value:
        return _nothing_yet(name, value)
    if isinstance(value, tuple):
        return "".join([f"\n{name}:\n", *(_entry(item) for item in value)])
    if isinstance(value, Mapping):
        return "".join([f"\n{name}:\n", *(_named(key, item) for key, item in value.items())])
    return f"\n# {_sentence(value)}\n{name}:\n" + _settings(value, "  ")


def _nothing_yet(name: str, value: Any) -> str:  # noqa: ANN401 (an empty list or mapping)
    """Nothing stands there by default; what could is shown all the same."""
    field = Config.model_fields[name]
    (kind,) = [each for each in get_args(field.annotation) if isinstance(each, type) and issubclass(each, BaseModel)]
    empty, entry = ("{}", "NAME:") if isinstance(value, Mapping) else ("[]", "-")
    lines = ["", f"# {field.description}", f"{name}: {empty}", f"#   {entry} # {_sentence(kind)}"]
    for setting, about in kind.model_fields.items():
        default = "..." if about.is_required() else _scalar(about.default)
        lines += [f"#     # {about.description}", f"#     {setting}: {default}"]
    return "\n".join([*lines, ""])


def _entry(block: BaseModel) -> str:
    lines = _settings(block, "    ")
    first = lines.index("    " + next(iter(type(block).model_fields)) + ":")
    return f"  # {_sentence(block)}\n" + lines[:first] + "  - " + lines[first + 4 :]


def _named(name: str, block: BaseModel) -> str:
    return f"  # {_sentence(block)}\n  {name}:\n" + _settings(block, "    ")


def _settings(block: BaseModel, indent: str) -> str:
    said = []
    for name, field in type(block).model_fields.items():
        value = getattr(block, name)
        said.append(f"{indent}# {field.description}\n{indent}{name}:")
        if isinstance(value, BaseModel):
            said.append("\n" + _settings(value, indent + "  "))
        else:
            said.append(f" {_scalar(block.model_dump(mode='json')[name])}\n")
    return "".join(said)


def _scalar(value: Any) -> str:  # noqa: ANN401 (whatever YAML can say on one line)
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()


def _sentence(block: BaseModel | type[BaseModel]) -> str:
    return " ".join((block.__doc__ or "").split())
