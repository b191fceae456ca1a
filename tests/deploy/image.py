"""Takes the steps of the Dockerfile in a folder, without a container engine, and runs what comes of them.

    debootstrap --variant=minbase --include=ca-certificates,libssl3,libffi8,libsqlite3-0,libbz2-1.0 bookworm BASE
    cp -a PYTHON/. BASE/usr/local/        # a Python of the version that the Dockerfile names
    sudo .venv/bin/python -m tests.deploy.image BASE

BASE stands for the image `python:...-slim`. Each stage is a copy of it, each RUN a shell in that copy (chroot), in
mounts of its own. The result runs as in a container: as its user, with the root read-only and /state as its one volume.
Its HEALTHCHECK must succeed, a request must get through, and SIGTERM must end it in time.
"""
# ruff: noqa: T201 - a command says what it does

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests import ROOT
from tests.support.scripted_upstream import Upstream, text_turn

START_SECONDS, STOP_SECONDS = 30.0, 35.0
PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
URL = "http://127.0.0.1:8800"


@dataclass(slots=True)
class Stage:
    """One stage: its files, and what the steps have set so far."""

    root: Path
    folder: str = "/"
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH, "HOME": "/root"})
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    healthcheck: list[str] = field(default_factory=list)

    def call(self, command: list[str], *, is_read_only: bool = False, state: Path | None = None) -> list[str]:
        """The command that runs `command` in this root, in mounts of its own."""
        root = shlex.quote(str(self.root))
        mounts = [f"mount --bind {root} {root}", f"mount -t proc proc {root}/proc"]
        mounts += [f"mount --rbind /dev {root}/dev", f"mount --bind /etc/resolv.conf {root}/etc/resolv.conf"]
        if state is not None:
            mounts.append(f"mount --bind {shlex.quote(str(state))} {root}/state")
        if is_read_only:
            mounts.append(f"mount -o remount,bind,ro {root}")
        values = [f"{name}={value}" for name, value in self.environment.items()]
        inside = shlex.join(
            ["chroot", f"--userspec={self.user}", str(self.root), "/usr/bin/env", "-i", *values, *command]
        )
        return ["unshare", "--mount", "--fork", "sh", "-c", f"{' && '.join(mounts)} && exec {inside}"]


def read_steps(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Dockerfile, each with its argument."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        if line.strip():
            name, _, argument = line.strip().partition(" ")
            yield name.upper(), argument.strip()


def take(base: Path, work: Path) -> Stage:
    """Take all steps; the last stage is the image."""
    stages: dict[str, Stage] = {}
    stage = Stage(base)
    for name, argument in read_steps((ROOT / "Dockerfile").read_text(encoding="utf-8")):
        print(name, argument[:100], flush=True)
        match name:
            case "FROM":
                label = argument.partition(" AS ")[2] or "image"
                root = work / label
                subprocess.run(["cp", "-a", str(base), str(root)], check=True)
                stage = stages[label] = Stage(root)
            case "WORKDIR":
                stage.folder = argument
                (stage.root / argument.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "COPY":
                _copy(stage, stages, shlex.split(argument))
            case "RUN":
                script = f"cd {stage.folder} && {argument}"
                subprocess.run(stage.call(["/bin/sh", "-c", script]), check=True)
            case "ARG" | "LABEL" | "VOLUME" | "EXPOSE":
                pass
            case _:
                _set(stage, name, argument)
    return stage


def _set(stage: Stage, name: str, argument: str) -> None:
    """Note what the process is to be started with."""
    match name:
        case "ENV":
            pairs = dict(pair.split("=", 1) for pair in shlex.split(argument))
            stage.environment |= {key: value.replace("$PATH", PATH) for key, value in pairs.items()}
        case "USER":
            stage.user = argument
        case "ENTRYPOINT":
            stage.entrypoint = json.loads(argument)
        case "CMD":
            stage.command = json.loads(argument)
        case "HEALTHCHECK":
            stage.healthcheck = json.loads(argument[argument.index("CMD ") + 4 :])
        case _:
            raise ValueError(f"unknown instruction {name}")


def _copy(stage: Stage, stages: dict[str, Stage], words: list[str]) -> None:
    options = [word for word in words if word.startswith("--")]
    *sources, target = [word for word in words if not word.startswith("--")]
    origin = next((stages[word[7:]].root for word in options if word.startswith("--from=")), ROOT)
    owner = next((word[8:] for word in options if word.startswith("--chown=")), "0:0")
    to = stage.root / (target if target.startswith("/") else f"{stage.folder}/{target}").lstrip("/")
    for source in sources:
        path = origin / source.lstrip("/")
        into = to / path.name if target.endswith("/") and not path.is_dir() else to
        into.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, into, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(path, into)
        subprocess.run(["chown", "-R", owner, str(into)], check=True)


def run(image: Stage, upstream: str, state: Path) -> None:
    """Run the image, and ask for all that an engine and a client would."""
    state.mkdir()
    subprocess.run(["chown", image.user, str(state)], check=True)
    command = [*image.entrypoint, *image.command, "--upstream", upstream]
    process = subprocess.Popen(image.call(command, is_read_only=True, state=state), start_new_session=True)
    try:
        began = time.monotonic()
        while subprocess.run(image.call(image.healthcheck), check=False, stderr=subprocess.DEVNULL).returncode:
            assert process.poll() is None, "the process ended"
            assert time.monotonic() - began < START_SECONDS, "the healthcheck fails"
            time.sleep(0.2)
        print(f"healthy after {time.monotonic() - began:.1f} s")
        print(_ask())
        print("in /state:", ", ".join(sorted(path.name for path in state.iterdir())))
        server = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").strip()
        os.kill(int(server), signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0, "SIGTERM does not end it well"
        print("ended by SIGTERM with 0")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _ask() -> str:
    body = json.dumps({"model": "gpt-5.1", "messages": [{"role": "user", "content": "Hello"}]}).encode()
    request = urllib.request.Request(f"{URL}/v1/chat/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return f"{answer.status}, x-compaction: {answer.headers['x-compaction']}"


async def main(base: Path) -> int:
    async with Upstream(text_turn("Hi")) as upstream:
        with tempfile.TemporaryDirectory(prefix="image-", dir=base.parent) as folder:
            image = await asyncio.to_thread(take, base, Path(folder))
            await asyncio.to_thread(run, image, upstream.url, Path(folder) / "state")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]).resolve())))
