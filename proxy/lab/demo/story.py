"""What the agent does, step after step: look around, reproduce the fault, mend module after module, look at the whole.

A step is what the model says and the tools it calls; the results are made here as well, once, so that the same seed
tells the same story to the byte. No run is ever too long for it: there is always one more module to mend.
"""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from proxy.lab.demo import code, logs
from proxy.lab.demo.workshop import Workshop

MODULES = 14
_THOUGHTS = (
    "Let me look at how the {thing} hangs together with this before I change anything.",
    "The amounts differ by exactly one {thing}, so something is counted twice.",
    "That explains half of it. The other half must come from the {thing} side.",
    "I'll check the callers first, because {when}.",
    "This is where the second charge is made.",
    "",
    "",
    "Now the same for the {thing}s.",
    "Good. I want to see what happens when {when}.",
)


@dataclass(frozen=True, slots=True)
class Act:
    """A tool's call and what it gives."""

    tool: str
    arguments: str
    result: str


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the model; without acts it is the last."""

    says: str
    acts: tuple[Act, ...] = ()


class Story:
    """One seed's story."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)  # noqa: S311 (no secret: the same story every time is the point)
        self.modules = self._dice.sample(code.THINGS, MODULES)
        files = {}
        for name in self.modules:
            files[f"tidewater/{name}.py"] = code.module(name, self._dice.randrange(16, 50), self._dice)
            files[f"tests/test_{name}.py"] = code.test_module(name, self._dice.randrange(6, 20), self._dice)
        self._shop = Workshop(files)
        self._done: list[str] = []

    def steps(self) -> Iterator[Step]:
        yield from self._look_around()
        for number in count(1):
            yield from self._mend(self.modules[(number - 1) % MODULES])
            if number % 4 == 0:
                yield from self._look_at_the_whole()

    # --- phases --------------------------------------------------------------------------------------------------

    def _look_around(self) -> Iterator[Step]:
        first, second = self.modules[:2]
        yield self._step(self._bash("ls -R tidewater tests | head -60", self._shop.glob(".py")), self._glob("*.py"))
        yield self._step(self._bash("git log --oneline | head -40", self._commits(40)), self._todo())
        yield self._step(self._read(f"tidewater/{first}.py"))
        yield self._step(self._grep(f"def .*_{first}_", "tidewater"), self._grep(f"import .*{second}", ""))
        yield self._step(self._read(f"tidewater/{second}.py"), self._read(f"tests/test_{first}.py", 1, 80))
        yield self._step(self._bash("poetry run pytest -q", "bash: poetry: command not found", 127))
        yield self._step(self._tests(first, 2))
        yield self._step(self._fetch(f"https://docs.tidewater.example/billing/{first}-charges", 14))

    def _mend(self, name: str) -> Iterator[Step]:
        """Find, read, change, fail, read again, change again, pass."""
        path = f"tidewater/{name}.py"
        yield self._step(self._grep(f"{name}(_|\\.)", "tidewater" if self._often(0.6) else ""))
        yield self._step(*self._reads(name))
        if self._often(0.4):
            yield self._aside(name)
        yield self._step(self._edit(path))
        yield self._step(self._tests(name, self._dice.randrange(1, 6)))
        if self._often(0.5):
            yield self._step(self._bash(f"tail -n 200 /var/log/tidewater/{name}.log", self._server_log(name)))
        yield self._step(self._read(path, self._dice.randrange(20, 120), self._dice.randrange(80, 220)))
        if self._often(0.3):
            yield self._step(self._stale_edit(path))
        yield self._step(*(self._edit(path) for _ in range(self._dice.randrange(1, 3))))
        if self._often(0.8):
            yield self._step(self._write(name))
        yield self._step(self._tests(name, 0))
        self._done.append(name)
        yield self._step(self._todo())

    def _look_at_the_whole(self) -> Iterator[Step]:
        yield self._step(self._bash("git status --short", self._shop.stat()))
        yield self._step(self._bash("git diff", self._shop.diff()[:24_000]))
        yield self._step(self._bash("mypy tidewater", logs.types(self.modules, 9, self._dice), 1))
        yield self._step(self._read(f"tidewater/{self._dice.choice(self._done)}.py", 1, 160))
        yield self._step(self._tests("all", 1))

    def _aside(self, name: str) -> Step:
        thing = self._dice.choice(code.THINGS)
        return self._dice.choice(
            (
                lambda: self._step(self._fetch(f"https://docs.tidewater.example/{thing}/{name}", 9)),
                lambda: self._step(
                    self._bash(f"curl -s localhost:8080/v2/{thing}s?limit=40", logs.rows(thing, 40, self._dice))
                ),
                lambda: self._step(self._bash(f"git log -p -3 -- tidewater/{name}.py", self._shop.diff()[:9_000])),
                lambda: self._step(self._grep(f"TODO|FIXME|{thing}_id", "tidewater"), self._glob(f"{thing}.py")),
            )
        )()

    # --- acts ----------------------------------------------------------------------------------------------------

    def _step(self, *acts: Act) -> Step:
        said = self._dice.choice(_THOUGHTS)
        return Step(said.format(thing=self._dice.choice(code.THINGS), when=self._dice.choice(code.WHEN)), acts)

    def _reads(self, name: str) -> list[Act]:
        """One file whole, or stretches of two at once."""
        if self._often(0.5):
            return [self._read(f"tidewater/{name}.py")]
        return [
            self._read(f"tidewater/{name}.py", 1, self._dice.randrange(100, 260)),
            self._read(f"tests/test_{name}.py", self._dice.randrange(1, 30), 90),
        ]

    def _read(self, path: str, offset: int = 1, limit: int = 0) -> Act:
        asked = {"file_path": path, **({"offset": offset, "limit": limit} if limit else {})}
        return _act("Read", asked, self._shop.read(path, offset, limit or 2_000))

    def _grep(self, pattern: str, under: str) -> Act:
        return _act("Grep", {"pattern": pattern, "path": under or "."}, self._shop.grep(pattern, under))

    def _glob(self, pattern: str) -> Act:
        return _act("Glob", {"pattern": f"**/{pattern}"}, self._shop.glob(pattern.removeprefix("*")))

    def _bash(self, command: str, printed: str, exit_code: int = 0) -> Act:
        told = f"Exit code: {exit_code}\n{printed}" if exit_code else printed or "(no output)"
        return _act("Bash", {"command": command, "description": f"Run {command.split(maxsplit=1)[0]}"}, told)

    def _tests(self, name: str, failures: int) -> Act:
        wrong = [
            f"test_{self._dice.choice(code.VERBS)}_{name}_{self._dice.choice(code.THINGS)}" for _ in range(failures)
        ]
        printed = logs.tests(name, self._dice.randrange(12, 70), wrong, self._dice)
        where = "" if name == "all" else f"/test_{name}.py"
        return self._bash(f"python -m pytest tests{where} -v", printed, 1 if failures else 0)

    def _server_log(self, name: str) -> str:
        return logs.server(self._dice.randrange(30, 130), logs.fault(name, self._dice), self._dice)

    def _fetch(self, url: str, paragraphs: int) -> Act:
        asked = {"url": url, "prompt": "What does it say about charges that are made twice?"}
        return _act("WebFetch", asked, logs.page(url.rpartition("/")[2], paragraphs, self._dice))

    def _commits(self, number: int) -> str:
        return "\n".join(
            f"{self._dice.getrandbits(28):07x} {self._dice.choice(code.VERBS).capitalize()} "
            f"{self._dice.choice(code.THINGS)}s where {self._dice.choice(code.WHEN)}"
            for _ in range(number)
        )

    def _edit(self, path: str) -> Act:
        old = self._block(path)
        new = self._changed(old)
        asked = {"file_path": path, "old_string": old, "new_string": new}
        return _act("Edit", asked, self._shop.edit(path, old, new))

    def _stale_edit(self, path: str) -> Act:
        """From memory, and wrong: every agent does it now and then."""
        old = self._block(path).replace("    ", "  ", 1) + "\n# as it was"
        asked = {"file_path": path, "old_string": old, "new_string": self._changed(old)}
        return _act("Edit", asked, self._shop.edit(path, old, old))

    def _write(self, name: str) -> Act:
        path = f"tests/test_{name}_{self._dice.choice(code.VERBS)}.py"
        text = code.test_module(name, self._dice.randrange(10, 28), self._dice)
        return _act("Write", {"file_path": path, "content": text}, self._shop.write(path, text))

    def _todo(self) -> Act:
        todos = [
            {
                "content": f"{name}: find the second charge, mend it, test it",
                "status": "completed" if name in self._done else "in_progress" if at == len(self._done) else "pending",
            }
            for at, name in enumerate(self.modules)
        ]
        return _act("TodoWrite", {"todos": todos}, "Todos have been modified. Go on with the current task.")

    def _block(self, path: str) -> str:
        """A function of the file as it stands now."""
        blocks = [block for block in self._shop.files[path].split("\n\n\n") if block.startswith(("def ", "async def "))]
        once = [block for block in blocks if self._shop.files[path].count(block) == 1]
        return self._dice.choice(once)

    def _changed(self, block: str) -> str:
        """The same with a guard after its first lines."""
        lines = block.split("\n")
        thing, field = self._dice.choice(code.THINGS), self._dice.choice(code.FIELDS)
        number = self._dice.randrange(1_000, 99_999)
        guard = [
            f"    if is_settled({thing!r}, {field!r}):  # HB-{number}: {self._dice.choice(code.RULES)}",
            f'        logger.info("{thing} was charged before: %s", {number})',
            f"        return already_settled({thing!r}, ticket={number})",
        ]
        return "\n".join([*lines[:2], *guard[: self._dice.randrange(1, 4)], *lines[2:]])

    def _often(self, share: float) -> bool:
        return self._dice.random() < share


def _act(tool: str, arguments: Mapping[str, object], result: str) -> Act:
    return Act(tool, json.dumps(arguments), result)
