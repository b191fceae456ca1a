"""Mutation test: how many small faults do the tests beside the code notice?

    python bench/mutants.py                      # 200 mutants of the rooms that decide and keep
    python bench/mutants.py --draw 20 --room access

Each mutant changes one operator, constant, condition or return of one function in a copy of the project, and runs the
fast tests of the same room until the first fails. Mutants are drawn by a seed, from each room alike; docstrings,
annotations and messages of errors are not changed. Survivors are printed as a diff.
"""

import argparse
import ast
import copy
import difflib
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("decide", "serve", "access", "shorten", "store", "wire")
TESTS_OF_REQUESTS = ("tests/path", "tests/summary", "tests/gateway", "tests/shorten/test_golden_summaries.py")
"""Those of the rooms `decide` and `serve`."""
MINUTES_PER_MUTANT = 10
LEAST_SHARE_KILLED = 0.85

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    path: Path
    line: int
    source: str
    """The whole module with the fault in it."""


def mutate(node: ast.AST) -> Iterator[ast.AST]:
    """Each faulty version of *node* itself; its children are visited by themselves."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        compared = copy.deepcopy(node)
        compared.ops[0] = COMPARISONS[type(node.ops[0])]()
        yield compared
    elif isinstance(node, ast.BoolOp):
        joined = copy.deepcopy(node)
        joined.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield joined
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not isinstance(node.left, ast.JoinedStr):
        computed = copy.deepcopy(node)
        computed.op = ARITHMETIC[type(node.op)]()
        yield computed
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield copy.deepcopy(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield ast.Return(ast.Constant(None))


def find_places(function: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Each child within *function* that can be replaced: its parent, the field, and its index if that is a list."""
    for parent in ast.walk(function):
        if isinstance(parent, ast.Raise | ast.JoinedStr | ast.arguments | ast.AnnAssign):
            continue
        for field, value in ast.iter_fields(parent):
            if field in {"annotation", "returns", "decorator_list", "type_params"}:
                continue
            if isinstance(value, ast.AST):
                yield parent, field, None
            elif isinstance(value, list):
                for index, child in enumerate(value):
                    if isinstance(child, ast.AST):
                        yield parent, field, index


def make_mutants(path: Path) -> list[Mutant]:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    mutants = []
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]:
        for parent, field, index in find_places(function):
            value = getattr(parent, field)
            child = value if index is None else value[index]
            if not isinstance(child, ast.expr | ast.stmt) or child.end_lineno is None:
                continue
            texts = [ast.unparse(faulty) for faulty in mutate(child)]
            if isinstance(parent, ast.If) and field == "test":
                texts.append("False")
            for text in texts:
                written = f"({text})" if isinstance(child, ast.expr) else text
                mutants.append(Mutant(path, child.lineno, replace(lines, child, written)))
    return [mutant for mutant in dict.fromkeys(mutants) if mutant.source != source and is_valid(mutant.source)]


def replace(lines: list[str], node: ast.expr | ast.stmt, text: str) -> str:
    """The module with *text* where *node* stands; columns of a node count bytes."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    before = lines[node.lineno - 1].encode()[: node.col_offset].decode()
    after = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
    return "".join([*lines[: node.lineno - 1], before, text, after, *lines[node.end_lineno :]])


def is_valid(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def draw(rooms: list[str], count: int, seed: int) -> list[Mutant]:
    """*count* mutants, from each room the same number."""
    chance = random.Random(seed)
    drawn: list[Mutant] = []
    for number, room in enumerate(rooms):
        mutants = [mutant for path in sorted((ROOT / "proxy" / room).rglob("*.py")) for mutant in make_mutants(path)]
        share = count // len(rooms) + (number < count % len(rooms))
        drawn += chance.sample(mutants, min(share, len(mutants)))
    return drawn


def is_killed(mutant: Mutant, project: Path) -> bool:
    """Run the fast tests of the mutant's room in *project*, a copy, until the first fails."""
    relative = mutant.path.relative_to(ROOT)
    path = project / relative
    whole = path.read_text(encoding="utf-8")
    path.write_text(mutant.source, encoding="utf-8")
    try:
        return not do_tests_pass(relative.parts[1], project, find_reaching(relative.as_posix()))
    finally:
        path.write_text(whole, encoding="utf-8")


def find_reaching(path: str) -> list[str]:
    """Return the files of tests that reach this module most specifically: they are likely to notice a fault first."""
    files: list[str] = json.loads((ROOT / "tests" / "reach.json").read_text(encoding="utf-8"))["tests"].get(path, [])
    return files


def do_tests_pass(room: str, project: Path, first: Sequence[str] = ()) -> bool:
    """Run the fast tests of a room, those of its files that are in *first* before the others."""
    folders = TESTS_OF_REQUESTS if room in ("decide", "serve") else (f"tests/{room}",)
    tests = [*(file for file in first if file.startswith(folders) and (project / file).exists()), *folders]
    # The folder it runs in comes first on the path: the tests import the copy, and not the installed project.
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-n", "2", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            [*command, "-m", "not seconds and not slow and not soak", "--timeout=300"],
            cwd=project,
            capture_output=True,
            timeout=60 * MINUTES_PER_MUTANT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    # A failed run ends with 1, one that was stopped at its first failure on two processes with 2.
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(f"the tests did not run: {done.stdout.decode(errors='replace')[-2000:]}")
    return done.returncode == 0


def show(mutant: Mutant) -> str:
    before = mutant.path.read_text(encoding="utf-8").splitlines()
    name = str(mutant.path.relative_to(ROOT))
    lines = difflib.unified_diff(before, mutant.source.splitlines(), name, f"{name}:{mutant.line}", lineterm="", n=1)
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", action="append", choices=ROOMS, help="only this room; may be repeated")
    parser.add_argument("--draw", type=int, default=200, help="number of mutants (default 200)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    mutants = draw(options.room or list(ROOMS), options.draw, options.seed)
    killed = dict.fromkeys(options.room or ROOMS, 0)
    tried = dict.fromkeys(killed, 0)
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        shutil.copytree(ROOT, project, ignore=shutil.ignore_patterns(".git", ".venv", "node_modules", ".*_cache"))
        for room in tried:
            if not do_tests_pass(room, project):
                raise SystemExit(f"the tests of {room} fail without a mutant, so nothing can be said")
        for number, mutant in enumerate(mutants, 1):
            room = mutant.path.relative_to(ROOT).parts[1]
            tried[room] += 1
            if is_killed(mutant, project):
                killed[room] += 1
                print(f"killed ({number} of {len(mutants)}): {mutant.path.relative_to(ROOT)}:{mutant.line}", flush=True)
            else:
                print(f"survived ({number} of {len(mutants)}):\n{show(mutant)}\n", flush=True)
    for room, count in tried.items():
        print(f"{room:10} {killed[room]:4} of {count:4} killed")
    share = sum(killed.values()) / max(1, len(mutants))
    print(f"all        {share:.0%} (at least {LEAST_SHARE_KILLED:.0%} is the aim)")
    return 0 if share >= LEAST_SHARE_KILLED else 1


if __name__ == "__main__":
    sys.exit(main())
