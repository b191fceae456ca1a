"""`run -- COMMAND`: an agent and a proxy for it, in one command.

    compaction-proxy run -- claude -p "Mend the tests."

1. A proxy that `serve` runs on the state folder is taken, or one is started for as long as the command runs.
2. The command gets its address in the variables, and Codex in the options, by which agents are told a base URL.
3. Its exit code is passed on, and the net saving is printed if there is an activity log.
"""

import argparse
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from proxy.cli import options
from proxy.cli.operated import list_running
from proxy.config.loading import Loaded
from proxy.config.settings import Config
from proxy.store.activity_log import ActivityLog

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_SIGNALLED_STATUS = 128
"""Shells add it to the number of the signal that ended a command."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = options.add_command(
        commands,
        "run",
        "run an agent behind a proxy, which is started if none runs",
        "run -- claude",
        "run -- codex exec 'Mend the tests.'",
        "run -- python my_agent.py",
    )
    options.add_config_and_state(parser)
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the agent and its arguments")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    words = args.words[args.words[:1] == ["--"] :]
    if not words:
        raise options.CommandFailed("name a command behind --, such as: compaction-proxy run -- claude")
    loaded_config = options.load_configuration(args, needs_secrets=False)
    folder = Path(loaded_config.config.state.dir).absolute()
    since = time.time()
    for number in _SIGNALS:
        signal.signal(number, _end)
    with _proxy_at(folder, args, words, loaded_config) as url:
        if Path(words[0]).name == "codex":
            # Codex reads no variable: https://developers.openai.com/codex/config-reference
            provider = f'{{name="proxy",base_url="{url}/v1",wire_api="responses",env_key="OPENAI_API_KEY"}}'
            words[1:1] = ["-c", 'model_provider="proxy"', "-c", f"model_providers.proxy={provider}"]
        # OpenAI's SDKs want the version in a base URL, Anthropic's do not.
        variables = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_BASE": f"{url}/v1", "ANTHROPIC_BASE_URL": url}
        code = _run_command(words, variables)
        if loaded_config.config.admin.enabled:  # the activity log is kept for the pages
            time.sleep(2.0)  # turns are recorded a moment after their answers
            options.print_note(describe_saving(folder, since))
    return code


def _end(number: int, _frame: object) -> None:
    """End this process, and first the proxy that was started."""
    sys.exit(_SIGNALLED_STATUS + number)


def _run_command(words: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run the command up to its end, and pass signals on to it."""
    early_signals = list[int]()
    for expected in _SIGNALS:
        signal.signal(expected, lambda number, _: early_signals.append(number))
    try:
        command = subprocess.Popen(words, env={**options.read_environ(), **variables})  # noqa: S603 (the user's own)
    except OSError as fault:
        raise options.CommandFailed(f"{words[0]}: {fault.strerror}") from None
    for expected in _SIGNALS:
        signal.signal(expected, lambda number, _: command.send_signal(number))
    for number in early_signals:
        command.send_signal(number)
    while True:
        try:
            code = command.wait()
        except KeyboardInterrupt:  # the terminal has sent it to the command as well, which decides whether to end
            continue
        # Python reports the number of a signal as a negative code.
        return code if code >= 0 else _SIGNALLED_STATUS - code


@contextmanager
def _proxy_at(folder: Path, args: argparse.Namespace, words: Sequence[str], loaded_config: Loaded) -> Iterator[str]:
    is_for_anthropic = Path(words[0]).name == "claude" and loaded_config.config.upstreams == Config().upstreams
    for proxy in list_running(folder) if folder.is_dir() else []:
        # A proxy of another command ends with that. OpenAI must not get Claude Code's key.
        if not proxy.is_of_command and not (is_for_anthropic and proxy.has_shipped_upstream):
            yield proxy.url
            return
    options.print_warnings(loaded_config)
    command = [sys.executable, "-m", "proxy", "serve", "--port", "0", "--state", str(folder), "--log-level", "error"]
    command.append("--of-command")
    if args.config:
        command += ["--config", str(args.config)]
    if is_for_anthropic:
        own_gateway = options.read_environ().get("ANTHROPIC_BASE_URL", "").rstrip("/")
        command += ["--upstream", f"{own_gateway or 'https://api.anthropic.com'}/v1"]
    # In a session of its own: Ctrl-C in the terminal is for the command, whose last requests need the proxy.
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
    try:
        yield _await_start(folder, server)
    finally:
        server.terminate()
        server.wait()


def _takes_connections(url: str) -> bool:
    """Return whether something listens there. A proxy announces its address before it starts its worker."""
    address = urlsplit(url)
    try:
        socket.create_connection((address.hostname or "", address.port or 0), timeout=1.0).close()
    except OSError:
        return False
    return True


def _await_start(folder: Path, server: "subprocess.Popen[bytes]") -> str:
    end = time.monotonic() + 30.0
    while time.monotonic() < end and server.poll() is None:
        for proxy in list_running(folder) if folder.is_dir() else []:
            if proxy.pid == server.pid and _takes_connections(proxy.url):
                return proxy.url
        time.sleep(0.05)
    raise options.CommandFailed("the proxy did not start: `compaction-proxy serve` says why")


def describe_saving(folder: Path, since: float) -> str:
    """Return a sentence on the saving since a moment, for all users of the proxy, less the cost of shortening."""
    query = """
        select count(*) as requests, total(tokens_unshortened) as unshortened, total(tokens_after) as forwarded,
               total(refetches) as refetches, total(plain_dollars - paid_dollars) - (
                   select total(dollars) from incidents where name = 'summary-ended' and at >= :since) as dollars,
               count(plain_dollars) as priced
        from turns where at >= :since
    """
    log = ActivityLog(folder)
    rows = log.query(query, {"since": since})
    log.close()
    if not rows:
        return "compaction-proxy: what was saved is not recorded (the activity log cannot be read)."
    row = rows[0]
    if not row["requests"]:
        return "compaction-proxy: no history was long enough to be looked at."
    share = 1 - row["forwarded"] / max(1, row["unshortened"])
    amount = f"{abs(share):.0%} {'less' if share >= 0 else 'more'}"
    sentence = f"{row['forwarded']:,.0f} tokens forwarded instead of {row['unshortened']:,.0f} ({amount})"
    if row["priced"]:
        word = "less" if row["dollars"] >= 0 else "more"
        sentence += f", ${abs(row['dollars']):.2f} {word} for prompts and summaries"
    return f"compaction-proxy: {sentence}; {row['refetches']:,.0f} results fetched again."
