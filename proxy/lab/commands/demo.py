"""`demo`: run the real proxy between a simulated agent and a simulated model. No key, no network."""

import argparse
import asyncio
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TextIO

from msgspec import Struct

from proxy.access.registry import Registry
from proxy.cli import options
from proxy.cli.options import add_command, has_colours, print_error
from proxy.config.loading import Loaded, load
from proxy.config.policies import DEFAULT, shipped_policies
from proxy.foundation.lifetime import INTERRUPTED_STATUS
from proxy.lab.demo import picture
from proxy.lab.demo.agent import TURNS, TURNS_LIMIT, Agent, AgentTurn, sample
from proxy.lab.demo.model import NAME, WINDOW_TOKENS, Manner, SimulatedModel, SimulatedServer
from proxy.lab.demo.picture import Ink, Moment, Scenery, Tally, charge_untouched
from proxy.models.tokenizer import Tokenizers
from proxy.models.windows import resolve_window
from proxy.server import supervisor
from proxy.server.config_watch import ConfigSource
from proxy.server.worker import Worker, make_url
from proxy.shorten.economics import TokenPrices

PAUSE_SECONDS, RUN_SECONDS = 0.15, 22.0
SUMMARY_SECONDS = 2.0
NUDGED_EVERY = 20
LEAST_WINDOW_TOKENS = 16_000
"""The agent's largest step alone takes most of less."""
NARROWEST, WIDEST, TALLEST = 80, 96, picture.HEIGHT_LINES + 12


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    what = "run the real proxy between a simulated agent and a simulated model; no key, no network"
    parser = add_command(
        commands, "demo", what, "demo", "demo --turns 300", "demo --fast", "demo --policy middleware --window 400000"
    )
    parser.add_argument(
        "--turns", metavar="N", type=_parse_turns, default=TURNS, help=f"length of the run (default {TURNS})"
    )
    parser.add_argument(
        "--policy",
        metavar="P",
        choices=(DEFAULT, *shipped_policies()),
        help="run this included policy; then a person says a word every 20 turns, because some of them count these",
    )
    parser.add_argument(
        "--window",
        metavar="N",
        type=partial(options.parse_whole_number, minimum=LEAST_WINDOW_TOKENS),
        default=WINDOW_TOKENS,
        help=f"tokens the model can take (default {WINDOW_TOKENS:,})",
    )
    parser.add_argument("--fast", action="store_true", help="do not wait between the turns")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    os.environ["no_proxy"] = "127.0.0.1"  # noqa: TID251 (whatever is set for the network, this stays on the machine)
    try:
        return asyncio.run(_run_demo(args, tempfile.mkdtemp(prefix="compaction-proxy-demo-")))
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parse_turns(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= TURNS_LIMIT:
        raise argparse.ArgumentTypeError(f"a whole number from 1 to {TURNS_LIMIT}")
    return int(text)


async def _run_demo(args: argparse.Namespace, state: str) -> int:
    screen = Screen.of(sys.stdout)
    agent_run, tokenizer = sample(args.turns, nudged_every=NUDGED_EVERY if args.policy else 0), Tokenizers().of(NAME)
    scenery = Scenery(
        agent_run,
        charge_untouched(agent_run, tokenizer),
        args.window,
        resolve_window(NAME).prices or TokenPrices(0, 0, 0, 0),
    )
    manner = Manner(window=args.window, summary_seconds=0 if args.fast else SUMMARY_SECONDS)
    model = SimulatedModel(agent_run, tokenizer, manner)
    moment, began = Moment(scenery, [], Tally(model.received)), perf_counter()
    async with SimulatedServer(model) as upstream, _proxy(upstream.url, state, args) as url:
        agent = Agent(agent_run, url, NAME, 0 if args.fast else min(PAUSE_SECONDS, RUN_SECONDS / args.turns))
        playing = asyncio.create_task(_watch(agent, moment, screen))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, playing.cancel)
        await asyncio.wait({playing})
    closing = picture.format_closing(moment, perf_counter() - began, screen.width, screen.ink)
    screen.say(*closing, "", *_describe_originals(state, moment.turns))
    return INTERRUPTED_STATUS if playing.cancelled() else _exit_status(playing, moment)


def _exit_status(playing: asyncio.Task[None], moment: Moment) -> int:
    fault = playing.exception()
    if isinstance(fault, ConnectionError):
        return print_error(str(fault))
    if fault is not None:
        raise fault
    last = moment.turns[-1]
    return 0 if last.ok else print_error(f"turn {last.step + 1} failed: HTTP {last.status} {last.error}")


async def _watch(agent: Agent, moment: Moment, screen: "Screen") -> None:
    with screen:
        screen.show(moment)
        async for turn in agent.work():
            moment.turns.append(turn)
            screen.show(moment)


@asynccontextmanager
async def _proxy(upstream: str, state: str, args: argparse.Namespace) -> AsyncIterator[str]:
    """Run a proxy as with `serve`, on a free port."""
    loaded_config = _configure(upstream, state, args)
    config = loaded_config.config
    sock = supervisor.reserve_port(config)
    worker = Worker(ConfigSource(lambda: loaded_config, None), config, config, Registry())
    serving = asyncio.create_task(worker.run(sock))
    await asyncio.sleep(0)
    try:
        yield f"{make_url(config, sock)}/v1"
    finally:
        if not serving.done():
            signal.raise_signal(signal.SIGTERM)  # the way a user stops it
        await serving


def _configure(upstream: str, state: str, args: argparse.Namespace) -> Loaded:
    settings: dict[tuple[str | int, ...], object] = {
        ("listen", "port"): 0,
        ("listen", "drain_seconds"): 0,
        ("upstreams", 0, "base_url"): upstream,
        ("state", "dir"): state,
        ("log", "level"): "error",
    }
    if args.policy:  # else the proxy has to learn the window, as it does from any server
        settings["upstreams", 0, "policy"] = args.policy
        settings["upstreams", 0, "window"] = args.window
    return load(None, {}, settings)


def _describe_originals(state: str, turns: Sequence[AgentTurn]) -> list[str]:
    """Return commands as this program was invoked: after `make run` none is on the PATH."""
    conversation = next(
        (turn.read_note("-conversation") for turn in reversed(turns) if turn.read_note("-conversation")), ""
    )
    if not any(turn.read_note("") in ("created", "applied") for turn in turns):
        return [" Nothing was shortened, so no originals were kept. Try a longer run: --turns 150"]
    where = f"--state {shlex.quote(state)}"
    return [
        " The originals are kept. To see them, and what the model saw:",
        "",
        f"   {_program()} transcripts list {where}",
        f"   {_program()} transcripts show {conversation} --compacted {where}",
    ]


def _program() -> str:
    """Return the program, to be pasted into the same shell."""
    if Path(sys.argv[0]).name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m proxy"
    return shlex.quote(sys.argv[0])


class Screen(Struct):
    out: TextIO
    draws: bool
    width: int
    ink: Ink
    drawn: int = 0

    @classmethod
    def of(cls, out: TextIO) -> "Screen":
        size = shutil.get_terminal_size()
        able = out.isatty() and os.environ.get("TERM") != "dumb"  # noqa: TID251 (the one place)
        draws = able and size.lines > TALLEST and size.columns >= NARROWEST
        return cls(out, draws, min(size.columns, WIDEST), Ink(able and has_colours()))

    def __enter__(self) -> None:
        if self.draws:
            self.out.write("\x1b[?25l")  # no cursor while it runs
        else:
            self.say(f"{picture.TITLE}. {picture.LABEL}", "")

    def __exit__(self, *_: object) -> None:
        self.say(*(["\x1b[?25h"] if self.draws else [""]))

    def show(self, moment: Moment) -> None:
        if not self.draws:
            self.say(*(picture.format_lines(moment) if moment.turns else ()))
            return
        lines = picture.draw_panel(moment, self.width, self.ink)
        back = f"\x1b[{self.drawn}F" if self.drawn else ""
        self.drawn = len(lines)
        self.out.write(back + "".join(f"{line}\x1b[K\n" for line in lines))
        self.out.flush()

    def say(self, *lines: str) -> None:
        self.out.write("".join(f"{line}\n" for line in lines))
        self.out.flush()
