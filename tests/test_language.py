"""A word list for code and documents: plain technical English, measured.

Each rule has a number that it must not exceed, with the goal beside it. Lower the number when you have removed
something; never raise it. `python tests/test_language.py` prints every finding with its place.
"""

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from functools import cache
from itertools import chain

import pytest

from tests import ROOT

pytestmark = pytest.mark.xdist_group("language")  # the code is read once


# Findings when each number was last lowered; beside it the goal, and what is counted.
MOST = {
    "participles": 0,  # goal 11: functions named by a bare past participle (0.5 % of all)
    "shared names": 0,  # goal 3: public class names in more than one file
    "bare units": 0,  # goal 10: numeric constants whose name says no unit
    "riddles": 0,  # goal 16: docstrings that have to be guessed at (1 % of all)
    "words in documents": 0,  # goal 0
    "words in proxy.yaml": 0,  # goal 0
    "words in help": 0,  # goal 0: help texts of commands, descriptions of settings
    "words in messages": 0,  # goal 0: what is raised or printed
    "words in docstrings": 0,  # goal 0: docstrings, those behind an attribute included
    "words in comments": 0,  # goal 0
    "names in package": 0,  # goal 0: functions, parameters and variables that have to be guessed at
    "names in tests": 0,  # goal 0: functions, classes and files of tests and benchmarks that have to be guessed at
    "long lines": 0,  # goal 0: lines of documents over 120 characters, tables and code aside
}

PARTICIPLE = re.compile(
    r"""
    \w+ed | begun | bound | brought | built | caught | chosen | dealt | drawn | driven | fallen | felt | found | given
    | gone | heard | held | hidden | kept | known | laid | lain | led | left | lent | lost | made | meant | met | paid
    | said | seen | sent | shown | sold | spent | spoken | stolen | stood | sworn | taken | thought | thrown | told
    | understood | won | worn | written
    """,
    re.VERBOSE,
)
VERBS_IN_ED = {"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed"}

# How the name of a number may end: with a unit, with what kind of number it is, or with what it counts.
WITH_UNIT = re.compile(
    r"""
    (^|_)(
        SECONDS? | MS | MILLISECONDS | MINUTES | HOURS | DAYS | BYTES? | KIB | MIB | MEBIBYTE | MB | TOKENS
        | CHARS? | CHARACTERS | LETTERS | WORDS | LINES
        | RATIO | SHARE | PERCENT | DIVISOR | WEIGHT | COUNTS? | LIMIT | SIZE | MAX | MIN
        | PORT | STATUS | VERSION | FORMAT | SEED
        | BLOCKS | CONVERSATIONS | ENTRIES | EVENTS | FAILURES | FILES | GROUPS | IDS | ITEMS | KEYS | LEVELS | MEMBERS
        | MESSAGES | NAMES | OBJECTS | PASSAGES | PASSES | RECORDS | REQUESTS | RETRIES | SESSIONS | TASKS | THREADS
        | TRIES | TURNS
    )$
    | _PER_\w+$ | ^(MAX|MIN|N)_ | _(SECONDS|BYTES|TOKENS)_
    """,
    re.VERBOSE,
)

# Names that say how a value came about, or nothing, where they should say what it is.
RIDDLE_NAMES = re.compile(r"\b(?:anybody|gauge|gone|heard|nobody|rung|said|spoken|standing|stays|told|whose)\b")

RIDDLE = re.compile(
    r"\A\s*(who|whoever|whom|whose|nobody|somebody|what|whatever|whether|where)\b"
    r"|\b(of ours|in vain|all the same|to whoever|anew)\b",
    re.IGNORECASE,
)

# Words in documents, settings, help texts and messages that a reader has to guess at. What follows by a hyphen, a dot
# or a slash makes it another word (`stand-in`, `promises.sqlite`).
GUESSED_AT = re.compile(
    r"""
    \b(
        hearts? | houses? | doors? | promis(e|es|ed) | (?<!in[ -])flights? | errands? | wish(es|ed)? | inklings?
        | meanwhile | chronicles? | witness(es)? | fates? | shel(f|ves) | aftermath | curtains? | hiccups? | strangers?
        | whoever | whomever | whom | nobody | somebody | everybody | he | him | his | himself
        | in\ vain | anew | of\ ours | all\ the\ same | beneath\ notice | to\ the\ letter | politely
        | heeds? | dearest
        | (is|are|was|were)\ (said|told) | (stands? | standing | stood)(?!\ for\b)
    )\b(?![-./]\w)
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Words that a name in tests does without: what is reported is no secret, and who sends a request is a caller.
NAME_WORDS = re.compile(r"\b(tells?|told|said|heard|hears|who|stands(?! in\b)|law|laws|weather|crowd|desk|guests?)\b")
LONGEST_LINE_CHARACTERS = 120
MESSAGE_CALLS = ("print", "print_error", "Fault")


def is_participle(name):
    name = name.strip("_")
    return "_" not in name and PARTICIPLE.fullmatch(name) is not None and name not in VERBS_IN_ED


def is_number(node):
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def literals(node):
    """The text of a node: its string literals, of an f-string the text between the values."""
    return " ".join(n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))


def find_in_code(tree, place):
    """Findings of one module as (rule, place, text); class names as ("class", place, name)."""
    for node in ast.walk(tree):
        where = f"{place}:{getattr(node, 'lineno', 1)}"
        yield from ((rule, where, text) for rule, text in find_in_names(node))
        yield from ((rule, where, text) for rule, text in find_in_texts(node))
    yield from find_in_docstrings(tree, place)
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and is_number(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name) and target.id.isupper()]
            yield from (("bare units", f"{place}:{node.lineno}", name) for name in names if not WITH_UNIT.search(name))


def find_in_names(node):
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
        if is_participle(node.name) and not is_property:
            yield "participles", node.name
    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
        yield "class", node.name
    yield from (("names in package", word) for word in RIDDLE_NAMES.findall(split_words(name_bound_by(node))))


def name_bound_by(node):
    """The name that this node binds: a function, a class, a parameter or a variable; empty where it binds none."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.arg):
        return node.arg
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else ""


def find_in_test_names(tree, place):
    """Findings in the names of a module of tests or benchmarks: its file, functions and classes."""
    yield from (("names in tests", place, word) for word in words_of_name(place.rpartition("/")[2].removesuffix(".py")))
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name, where = re.sub(r"^test_((row_|f)[0-9]+_)*", "", node.name), f"{place}:{node.lineno}"
            leading = [word for word in ("what", "whatever") if name.startswith(f"{word}_")]
            participles = [name for rule, name in find_in_names(node) if rule == "participles"]
            words = [*leading, *words_of_name(name), *participles]
            yield from (("names in tests", where, f"{word} in {node.name}") for word in words)


def words_of_name(name):
    """The words of an identifier that a reader has to guess at."""
    words = split_words(name)
    return [*guessed_at(words), *NAME_WORDS.findall(words)]


def split_words(name):
    """An identifier as words in lower case."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").lower()


def find_in_texts(node):
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
        docstring = ast.get_docstring(node)
        if docstring and RIDDLE.search(docstring):
            yield "riddles", docstring.splitlines()[0]
    if isinstance(node, ast.Raise) and node.exc is not None:
        yield from (("words in messages", word) for word in guessed_at(literals(node.exc)))
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in MESSAGE_CALLS:
        yield from (("words in messages", word) for word in guessed_at(literals(node)))
    if isinstance(node, ast.keyword) and node.arg in ("help", "description", "epilog"):
        yield from (("words in help", word) for word in guessed_at(literals(node.value)))


def statements(node):
    """Every statement below a node. `ast.walk` would visit the expressions as well."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, name, ()):
            yield child
            yield from statements(child)


def find_in_docstrings(tree, place):
    """The words in texts that are statements: docstrings, and descriptions behind a value."""
    for node in statements(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            prose = re.sub(r"`[^`]*`", " ", node.value.value)
            yield from (("words in docstrings", f"{place}:{node.lineno}", word) for word in guessed_at(prose))


def find_in_comments(source, place):
    """Findings in the comments of a module."""
    if not any(guessed_at(line.partition("#")[2]) for line in source.splitlines()):
        return  # to find out which of them are comments is most of the work
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            prose = re.sub(r"`[^`]*`", " ", token.string)
            yield from (("words in comments", f"{place}:{token.start[0]}", word) for word in guessed_at(prose))


def guessed_at(text):
    return [match.group() for match in GUESSED_AT.finditer(text)]


def find_in_page(text, place):
    """Findings of one document. Code, and where a link leads to, is not prose."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if fenced:
            continue
        prose = re.sub(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->", " ", line)
        yield from (("words in documents", f"{place}:{number}", word) for word in guessed_at(prose))
        if len(line) > LONGEST_LINE_CHARACTERS and not line.lstrip().startswith("|"):
            yield "long lines", f"{place}:{number}", f"{len(line)} characters"


def find_in_settings(text, place):
    """Findings in the comments of proxy.yaml."""
    for number, line in enumerate(text.splitlines(), 1):
        prose = re.sub(r"`[^`]*`", " ", line.partition("#")[2])
        yield from (("words in proxy.yaml", f"{place}:{number}", word) for word in guessed_at(prose))


def find_modules(folder):
    """Modules below a folder, without those of programs that tests install there."""
    for path in sorted(folder.iterdir()):
        if path.suffix == ".py":
            yield path
        elif path.is_dir() and path.name not in {"node_modules", ".venv", "site-packages"}:
            yield from find_modules(path)


def documents():
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@cache
def findings():
    found, classes = defaultdict(list), defaultdict(set)
    for path in sorted((ROOT / "proxy").rglob("*.py")):
        source, file = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
        for rule, place, text in chain(find_in_code(ast.parse(source), file), find_in_comments(source, file)):
            if rule == "class":
                classes[text].add(path.relative_to(ROOT).as_posix())
            else:
                found[rule].append(f"{place} {text}")
    for path in chain(find_modules(ROOT / "tests"), find_modules(ROOT / "bench")):
        source, file = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
        tree = ast.parse(source)
        parts = find_in_docstrings(tree, file), find_in_comments(source, file), find_in_test_names(tree, file)
        for rule, place, text in chain(*parts):
            found[rule].append(f"{place} {text}")
    found["shared names"] = shared_names(classes)
    for path in documents():
        for rule, place, text in find_in_page(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))):
            found[rule].append(f"{place} {text}")
    for rule, place, text in find_in_settings((ROOT / "proxy.yaml").read_text(encoding="utf-8"), "proxy.yaml"):
        found[rule].append(f"{place} {text}")
    return found


def shared_names(classes):
    return [f"{name}: {', '.join(sorted(where))}" for name, where in sorted(classes.items()) if len(where) > 1]


@pytest.mark.parametrize("rule", MOST)
def test_no_rule_is_broken_more_often_than_it_was(rule):
    found = findings()[rule]
    assert len(found) <= MOST[rule], f"{len(found)} {rule}, at most {MOST[rule]}:\n" + "\n".join(found)


def test_every_rule_has_its_number():
    assert set(findings()) <= set(MOST)


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        ("participles", "def _kept(): ..."),
        ("participles", "async def asked(): ..."),
        ("bare units", "PATIENCE = 5.0"),
        ("bare units", "ROOM: int = 64 * 1024"),
        ("riddles", "def f():\n    'Where to look first.'"),
        ("words in docstrings", "class A:\n    'A retry of the heart.'"),
        ("words in docstrings", "MOST_BYTES = 5\n'A block that stands.'"),
        ("words in messages", "raise ValueError('nobody has this key')"),
        ("words in messages", "print(f'{key} opens no door')"),
        ("words in help", "parser.add_argument('--x', help='put it through the heart')"),
    ],
)
def test_a_broken_rule_is_found_in_code(rule, source):
    assert [finding[0] for finding in find_in_code(ast.parse(source), "planted.py") if finding[0] != "class"] == [rule]


@pytest.mark.parametrize(
    "source",
    [
        "@property\ndef kept(self): ...",
        "def is_kept(): ...",
        "def feed(): ...",
        "TIMEOUT_SECONDS = 5.0",
        "MAX_OPEN = 3",
        "def f():\n    'The body of a request.'",
        "raise ValueError('missing key: see promises.sqlite')",
        "print('12 requests in flight')",
    ],
)
def test_plain_code_is_left_alone(source):
    assert list(find_in_code(ast.parse(source), "planted.py")) == []


def test_a_word_in_a_comment_is_found():
    source = "a = 1\nb = 2  # whoever asks\nc = 'whoever # asks'\n"
    assert list(find_in_comments(source, "planted.py")) == [("words in comments", "planted.py:2", "whoever")]


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("tests/store/test_weather.py", ""),
        ("tests/test_a.py", "def test_whoever_asks_is_answered(): ..."),
        ("tests/test_a.py", "def test_f4_what_is_wrong_is_reported(): ..."),
        ("tests/test_a.py", "class OpenHouse: ..."),
        ("bench/a.py", "def kept(): ..."),
    ],
)
def test_a_name_in_tests_that_has_to_be_guessed_at_is_found(place, source):
    assert [finding[0] for finding in find_in_test_names(ast.parse(source), place)] == ["names in tests"]


def test_a_class_name_in_two_files_is_found():
    assert shared_names({"Answer": {"a.py", "b.py"}, "Call": {"a.py"}}) == ["Answer: a.py, b.py"]


def test_guessed_at_words_are_found_in_prose_only():
    page = "Nobody waits.\n`promises.sqlite`, a [stand-in](door.md), requests in flight\n```\nnobody\n```\n" + "x" * 121
    found = [finding[:2] for finding in find_in_page(page, "p")]
    assert found == [
        ("words in documents", "p:1"),
        ("long lines", "p:6"),
    ]
    settings = "key: nobody  # The house rules, `anew`.\n"
    assert list(find_in_settings(settings, "s")) == [("words in proxy.yaml", "s:1", "house")]


if __name__ == "__main__":
    for name, rows in sorted(findings().items()):
        sys.stdout.write(f"{name}: {len(rows)}\n" + "".join(f"  {row}\n" for row in rows))
