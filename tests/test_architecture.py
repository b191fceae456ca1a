"""The house is held by this file: who may import whom, which library has which door, and how large anything may grow.

Each room imports only from rooms that stand further left, never from a neighbour of its own column. Whoever wants
to change the plan changes it here, where it is seen.
"""

import ast
import re
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from tests import ROOT

pytestmark = pytest.mark.xdist_group("architecture")  # the code is read once

PACKAGE = ROOT / "proxy"

COLUMNS = (
    {"lru", "model_names"},
    {"core"},
    {"wire"},
    {"config", "windows", "events", "errors", "lifetime"},
    {"tokenizer", "store", "upstream"},
    {"telemetry"},
    {"access"},
    {"compaction"},
    {"gateway"},
    {"assembly"},
    {"admin"},
    {"server"},
    {"cli"},
    {"lab"},
    {"__main__"},
)
PLACE = {room: column for column, rooms in enumerate(COLUMNS) for room in rooms}
NOT_CODE = {"__init__", "data", "py.typed"}

# One library, one door (or one family of them).
DOORS = {
    "aiohttp": ("server/", "admin/", "upstream.py", "lab/simulated.py", "lab/demo/agent.py"),
    "multidict": ("server/", "upstream.py"),
    "yarl": ("upstream.py",),
    "tiktoken": ("tokenizer.py",),
    "pydantic": ("config/",),
    "yaml": ("config/",),
    "prometheus_client": ("telemetry/metrics.py",),
    "sqlite3": ("store/",),
    "obstore": ("store/transcripts/bucket.py",),
    "redis": ("store/redis_client.py",),
    "opentelemetry": ("telemetry/otel.py",),
    "brotli": ("wire/http.py",),
    "zstandard": ("wire/http.py",),
    "argparse": ("cli/", "lab/commands/"),
    "multiprocessing": ("server/supervisor.py",),
}
# The heart: values in, values out. No clock, no chance, no world.
PURE = {
    "bisect", "collections", "collections.abc", "dataclasses", "enum", "fnmatch", "functools", "hashlib", "hmac",
    "itertools", "json", "math", "operator", "posixpath", "re", "string", "typing",
    "unicodedata",
}  # fmt: skip
PURE_BYTES = PURE | {"base64", "binascii", "struct", "urllib.parse", "zlib", "msgspec", "brotli", "zstandard"}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval"}
VAGUE = {"util", "utils", "helper", "helpers", "manager", "base", "mixin", "common", "misc"}

# A module that needs more of ours than this is doing several things.
MOST_IMPORTS = 28


@cache
def modules():
    """Path within the package -> its tree."""
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def name_of(path):
    return ".".join(("proxy", *path.removesuffix(".py").removesuffix("__init__").strip("/").split("/"))).rstrip(".")


def imports(tree):
    """Each name that is imported, as (module, name within it or None, line)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are written out"
            yield from ((node.module, alias.name, node.lineno) for alias in node.names)


def imported_modules(tree):
    """The modules of this package that a tree needs."""
    known = {name_of(path) for path in modules()}
    for module, name, line in imports(tree):
        if module.partition(".")[0] == "proxy":
            within = f"{module}.{name}"
            yield (within if within in known else module), line


def room_of(module):
    return module.split(".")[1] if "." in module else "__init__"


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def at(path, node):
    return f"proxy/{path}:{getattr(node, 'lineno', node)}"


# --- arrows ----------------------------------------------------------------------------------------------------------


def test_every_room_stands_in_the_plan():
    standing = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.name != "__pycache__"} - NOT_CODE
    assert standing == PLACE.keys()


def test_each_room_imports_only_what_stands_further_left():
    wrong = [
        f"{at(path, line)} {room_of(name_of(path))} imports {module}"
        for path, tree in modules().items()
        for module, line in imported_modules(tree)
        if (room := room_of(name_of(path))) != room_of(module) != "__init__"
        and not PLACE[room_of(module)] < PLACE.get(room, -1)
    ]
    assert wrong == []


def test_telemetry_knows_events_and_the_activity_log():
    known = {
        room_of(module)
        for path, tree in modules().items()
        if path.startswith("telemetry/")
        for module, _ in imported_modules(tree)
    }
    assert known - {"telemetry", "__init__"} == {"events", "lifetime", "store", "windows", "wire"}


def test_no_two_modules_need_each_other():
    needs = {name_of(path): {module for module, _ in imported_modules(tree)} for path, tree in modules().items()}
    try:
        TopologicalSorter({module: needed - {module} for module, needed in needs.items()}).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


def test_nothing_is_imported_within_a_function_but_optional_libraries_at_the_composition_root():
    wrong = [
        at(path, node)
        for path, tree in modules().items()
        for function in functions(tree)
        if path != "assembly.py" or not function.name.startswith("_import_")
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert wrong == []


def test_only_the_lab_imports_the_lab():
    """Whatever serves must run without it; `cli` loads its commands by name, and only when one is asked for."""
    wrong = [
        at(path, line)
        for path, tree in modules().items()
        if not path.startswith("lab/")
        for module, line in imported_modules(tree)
        if room_of(module) == "lab"
    ]
    assert wrong == []


# --- doors and purity ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", DOORS)
def test_a_library_has_one_door(library):
    wrong = [
        at(path, line)
        for path, tree in modules().items()
        for module, _, line in imports(tree)
        if module.partition(".")[0] == library and not path.startswith(DOORS[library])
    ]
    assert wrong == []


@pytest.mark.parametrize(("room", "allowed"), [("core/", PURE), ("wire/", PURE_BYTES)])
def test_the_pure_rooms_import_nothing_that_touches_the_world(room, allowed):
    wrong = [
        f"{at(path, line)} {module}"
        for path, tree in modules().items()
        if path.startswith(room)
        for module, _, line in imports(tree)
        if module not in allowed and not module.startswith("proxy.") and module != "proxy"
    ]
    assert wrong == []


def test_the_heart_is_stdlib_only():
    assert {module.partition(".")[0] for module in PURE} <= sys.stdlib_module_names


def test_the_pure_rooms_do_nothing_asynchronous_and_open_nothing():
    wrong = [
        at(path, node)
        for path, tree in modules().items()
        if path.startswith(("core/", "wire/"))
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS)
    ]
    assert wrong == []


def test_only_the_command_line_reads_the_environment():
    wrong = [
        at(path, node)
        for path, tree in modules().items()
        if not path.startswith(("cli/", "lab/commands/"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in {("os", "environ"), ("os", "getenv"), ("os", "environb"), ("os", "putenv")}
    ]
    wrong += [
        at(path, line)
        for path, tree in modules().items()
        for module, name, line in imports(tree)
        if module == "os" and name in {"environ", "getenv", "environb"}
    ]
    assert wrong == []


# --- habits ----------------------------------------------------------------------------------------------------------


def test_nothing_is_rebound_through_global():
    wrong = [
        at(path, node) for path, tree in modules().items() for node in ast.walk(tree) if isinstance(node, ast.Global)
    ]
    assert wrong == []


BROAD = {"Exception", "BaseException", None}


def swallowed(tree):
    """The names of all that is caught and not raised again; a bare `except` is None."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and not is_plain_raise(node.body[-1]):
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            yield from (kind and ast.unparse(kind).rpartition(".")[2] for kind in kinds)


def is_plain_raise(node):
    """Who only tidies up, and lets the fault go on."""
    return isinstance(node, ast.Raise) and node.exc is None


# Who may end any fault, and why (docs/decisions/0012). No `except` does: `events.Containment` is the one place.
CONTAINED = {"gateway.py": "fail open", "events.py": "listener isolation"}


def test_one_place_catches_everything_and_two_use_it():
    assert [path for path, tree in modules().items() for kind in swallowed(tree) if kind in BROAD] == []
    made = [
        path
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Containment")
    ]
    assert sorted(made) == sorted(CONTAINED)
    ends = [
        path
        for path, tree in modules().items()
        for node in functions(tree)
        if node.name in {"__exit__", "__aexit__"} and node.returns is not None and ast.unparse(node.returns) != "None"
    ]
    assert ends == ["events.py"]


def test_nothing_swallows_everything():
    everything = {None, "BaseException"}
    assert [path for path, tree in modules().items() if everything & set(swallowed(tree))] == []
    suppressed = [
        at(path, node)
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("suppress")
        and {ast.unparse(kind) for kind in node.args} & {"Exception", "BaseException"}
    ]
    assert suppressed == []


def test_no_name_is_vague():
    words = [(path, path.removesuffix(".py").rpartition("/")[2]) for path in modules()]
    words += [
        (path, node.name)
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    assert [(path, word) for path, word in words if {*word.lower().split("_")} & VAGUE or word.endswith("Mixin")] == []


# --- sizes -----------------------------------------------------------------------------------------------------------


NOT_OURS = {"node_modules", ".venv", "site-packages"}


@cache
def code():
    return [path for folder in ("proxy", "tests", "bench") for path in written_below(ROOT / folder)]


def written_below(folder):
    """What others wrote stands in large folders between ours, and is not even looked at."""
    for path in folder.iterdir():
        if path.suffix == ".py":
            yield path
        elif path.is_dir() and path.name not in NOT_OURS:
            yield from written_below(path)


def test_no_module_needs_too_many_others():
    """Files are cut by subject and not by length; what grows out of hand shows in what it needs."""
    needs = {path: len({module for module, _ in imported_modules(tree)}) for path, tree in modules().items()}
    assembled = {"assembly.py", "server/worker.py"}
    assert {path: count for path, count in needs.items() if count > MOST_IMPORTS and path not in assembled} == {}


def test_every_file_opens_by_saying_what_it_is_for():
    silent = [
        str(path.relative_to(ROOT))
        for path in code()
        if (text := path.read_text(encoding="utf-8")).strip() and not ast.get_docstring(ast.parse(text))
    ]
    assert silent == []


def test_the_map_names_every_room():
    text = ast.get_docstring(modules()["__init__.py"])
    assert [room for room in PLACE if room not in text and room != "__main__"] == []


def test_no_test_imports_another_test():
    """What tests share stands in tests/support; an import of a test would also run its fixtures and parameters."""
    pattern = re.compile(r"^\s*from tests\.[\w.]*\btest_\w+ import|^\s*from tests\.\w[\w.]* import test_", re.MULTILINE)
    tests = written_below(ROOT / "tests")
    assert [str(path) for path in tests if pattern.search(path.read_text(encoding="utf-8"))] == []
