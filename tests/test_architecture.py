"""The architecture: which room may import which, where each library is used, and what no module may do.

A room is a folder of `proxy/`, or a module that stands in it alone. It imports only rooms that stand before it in
`LAYERS`, which the docstring of `proxy` shows. To change the order, change both.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from tests import ROOT

PACKAGE = ROOT / "proxy"

LAYERS = (
    "foundation",
    "tools",
    "history",
    "recall",
    "shorten",
    "wire",
    "events",
    "decide",
    "config",
    "models",
    "store",
    "upstream",
    "telemetry",
    "access",
    "serve",
    "assembly",
    "admin",
    "server",
    "cli",
    "lab",
    "__main__",
)
# Decided without I/O.
PURE_PARTS = (
    "foundation/declaration.py", "foundation/model_names.py",
    "tools/", "history/", "recall.py", "shorten/", "decide/",
)  # fmt: skip

# Where a library is imported.
USERS = {
    "aiohttp": ("server/", "admin/", "telemetry/hooks.py", "upstream/", "lab/demo/"),
    "multidict": ("server/", "upstream/"),
    "yarl": ("upstream/",),
    "tiktoken": ("models/tokenizer.py",),
    "pydantic": ("config/",),
    "yaml": ("config/",),
    "prometheus_client": ("telemetry/metrics.py",),
    "sqlite3": ("store/",),
    "obstore": ("store/transcripts/bucket.py",),
    "redis": ("store/redis.py",),
    "opentelemetry": ("telemetry/otel.py",),
    "brotli": ("wire/encodings.py",),
    "backports": ("wire/encodings.py",),
    "compression": ("wire/encodings.py",),
    "structlog": ("telemetry/log.py",),
    "argparse": ("cli/", "lab/commands/"),
    "multiprocessing": ("server/supervisor.py",),
}
# What the core imports: no clock, no randomness, no I/O.
PURE = {
    "bisect", "collections", "collections.abc", "dataclasses", "enum", "fnmatch", "functools", "hashlib", "hmac",
    "itertools", "json", "math", "msgspec", "msgspec.structs", "operator", "posixpath", "re", "string", "typing",
    "unicodedata",
}  # fmt: skip
PURE_BYTES = PURE | {
    "abc", "backports", "base64", "binascii", "brotli", "compression", "struct", "sys", "urllib.parse",
    "zlib",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "exec", "eval"}
VAGUE = {"util", "utils", "helper", "helpers", "manager", "base", "mixin", "common", "misc"}


@cache
def modules():
    """Path within the package -> its tree."""
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


@cache
def all_nodes():
    """Each node of the package, with its path: to walk all trees takes longer than to judge them."""
    return [(path, node) for path, tree in modules().items() for node in ast.walk(tree)]


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
    _, *names = module.split(".")
    return names[0] if names else "__init__"


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def place_of(path, node):
    return f"proxy/{path}:{getattr(node, 'lineno', node)}"


def test_the_layers_are_all_rooms():
    rooms = {path.partition("/")[0].removesuffix(".py") for path in modules()}
    assert rooms - {"__init__"} == set(LAYERS)


def test_no_room_imports_one_that_stands_above_it():
    height = {room: number for number, room in enumerate(LAYERS)}
    wrong = [
        f"{place_of(path, line)} {room_of(name_of(path))} imports {module}"
        for path, tree in modules().items()
        for module, line in imported_modules(tree)
        if height.get(room_of(module), 0) > height.get(room_of(name_of(path)), 0)
    ]
    assert wrong == []


def test_telemetry_imports_events_and_the_activity_log():
    imported = {
        room_of(module)
        for path, tree in modules().items()
        if path.startswith("telemetry/")
        for module, _ in imported_modules(tree)
    }
    assert imported - {"telemetry", "__init__"} == {"events", "foundation", "store", "wire"}


def test_no_modules_import_each_other_in_a_circle():
    needs = {name_of(path): {module for module, _ in imported_modules(tree)} for path, tree in modules().items()}
    try:
        TopologicalSorter({module: needed - {module} for module, needed in needs.items()}).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


def test_a_library_is_imported_in_its_place_only():
    wrong = [
        f"{place_of(path, line)} {module}"
        for path, tree in modules().items()
        for module, _, line in imports(tree)
        if not path.startswith(USERS.get(module.partition(".")[0], ""))
    ]
    assert wrong == []


@pytest.mark.parametrize(("part", "allowed"), [(PURE_PARTS, PURE), ("wire/", PURE_BYTES)])
def test_pure_parts_import_nothing_that_does_io(part, allowed):
    wrong = [
        f"{place_of(path, line)} {module}"
        for path, tree in modules().items()
        if path.startswith(part)
        for module, _, line in imports(tree)
        if module not in allowed and not module.startswith("proxy.") and module != "proxy"
    ]
    assert wrong == []


def test_the_core_imports_the_standard_library_and_structs_only():
    assert {module.partition(".")[0] for module in PURE} <= sys.stdlib_module_names | {"msgspec"}


def is_impure(path, node):
    if not path.startswith((*PURE_PARTS, "wire/")):
        return False
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS
    return isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)


def suppresses_everything(_path, node):
    if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("suppress"):
        return False
    return bool({ast.unparse(kind) for kind in node.args} & {"Exception", "BaseException"})


def borrows_a_thread(path, node):
    """asyncio's default threads look up the addresses of upstreams, and all others belong to lanes."""
    return (
        path != "foundation/lifetime.py"
        and isinstance(node, ast.Attribute)
        and node.attr in {"to_thread", "run_in_executor"}
    )


# Imports within functions, `global` and the environment are found by ruff: PLC0415, PLW0603, TID251.
FORBIDDEN = {
    "a pure part that is asynchronous or opens something": is_impure,
    "everything suppressed": suppresses_everything,
    "work in a thread that is of no lane": borrows_a_thread,
}


@pytest.mark.parametrize("is_forbidden", FORBIDDEN.values(), ids=FORBIDDEN)
def test_no_module_holds(is_forbidden):
    assert [place_of(path, node) for path, node in all_nodes() if is_forbidden(path, node)] == []


BROAD = {"Exception", "BaseException", None}


def find_swallowed(tree):
    """The names of all that is caught and not raised again; a bare `except` is None."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and not is_plain_raise(node.body[-1]):
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            yield from (kind and ast.unparse(kind).rpartition(".")[2] for kind in kinds)


def is_plain_raise(node):
    """True for a handler that only cleans up and raises the fault again."""
    return isinstance(node, ast.Raise) and node.exc is None


# Modules that may end any fault, and why (decision 0012): by `lifetime.Containment`, and no `except`.
CONTAINED = {"serve/gateway.py": "fail open", "events.py": "listener isolation"}


def test_one_place_catches_everything_and_two_use_it():
    assert [path for path, tree in modules().items() for kind in find_swallowed(tree) if kind in BROAD] == []
    made = [
        path
        for path, node in all_nodes()
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Containment")
    ]
    assert sorted(made) == sorted(CONTAINED)
    ends = [
        path
        for path, tree in modules().items()
        for node in functions(tree)
        if node.name in {"__exit__", "__aexit__"} and node.returns is not None and ast.unparse(node.returns) != "None"
    ]
    assert ends == ["foundation/lifetime.py"]


def test_no_name_is_vague():
    words = [(path, path.removesuffix(".py").rpartition("/")[2]) for path in modules()]
    words += [
        (path, node.name)
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    assert [(path, word) for path, word in words if {*word.lower().split("_")} & VAGUE or word.endswith("Mixin")] == []


OTHER_PROGRAMS = {"node_modules", ".venv", "site-packages"}


@cache
def code():
    return [path for folder in ("proxy", "tests", "bench") for path in written_below(ROOT / folder)]


def written_below(folder):
    """Modules in this folder; folders of other programs, which are large, are not searched."""
    for path in folder.iterdir():
        if path.suffix == ".py":
            yield path
        elif path.is_dir() and path.name not in OTHER_PROGRAMS:
            yield from written_below(path)


def test_every_file_has_a_docstring():
    without = [
        str(path.relative_to(ROOT))
        for path in code()
        if (text := path.read_text(encoding="utf-8")).strip()
        and not text.startswith('"""')
        and not ast.get_docstring(ast.parse(text))
    ]
    assert without == []


PACKAGES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("__init__.py"))


def names_in_map(text):
    """The names that the map in a docstring lists, in its order: each begins a line, and its description follows."""
    return [name.rstrip("/") for name in re.findall(r"^ *([\w/]+?/?)  +\S", text, re.MULTILINE)]


@pytest.mark.parametrize("path", PACKAGES)
def test_the_map_of_a_package_lists_what_is_in_it(path):
    folder = (PACKAGE / path).parent
    modules_here = {each.stem for each in folder.glob("*.py")} - {"__init__", "__main__"}
    packages_here = {each.parent.name for each in folder.glob("*/__init__.py")}
    listed = names_in_map(ast.get_docstring(modules()[path]))
    assert sorted(listed) == sorted(modules_here | packages_here)


def test_the_map_of_the_whole_lists_the_layers_in_their_order():
    assert names_in_map(ast.get_docstring(modules()["__init__.py"])) == [*LAYERS[:-1]]


def test_no_test_imports_another_test():
    """What tests share is in tests/support; an import of a test would also run its fixtures and parameters."""
    pattern = re.compile(r"^\s*from tests\.[\w.]*\btest_\w+ import|^\s*from tests\.\w[\w.]* import test_", re.MULTILINE)
    tests = written_below(ROOT / "tests")
    assert [str(path) for path in tests if pattern.search(path.read_text(encoding="utf-8"))] == []


def test_every_file_that_ci_tests_apart_is_there():
    """Pytest stops at a path that is gone, before it runs anything."""
    script = (ROOT / ".ci/run").read_text()
    listing = script[script.index("apart=(") : script.index("\n)") + 2] + '\nprintf "%s\\n" "${apart[@]}"'
    paths = subprocess.run(["bash", "-c", listing], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []
