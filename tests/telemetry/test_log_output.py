"""A log that cannot be written costs log lines and nothing else: the running proxy with a bad standard output."""

import asyncio
import fcntl
import json
import os
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.support.agent import reading
from tests.support.compacting_proxy import metric, settings
from tests.support.proxy_client import ask, chat, fault_of, page

WORK = json.dumps({"model": "scripted-1", "messages": reading(24)}).encode()
FULL = Path("/dev/full")


@contextmanager
def pipe():
    """(read end, path under which a process can open the write end)."""
    read_end, write_end = os.pipe()
    try:
        yield read_end, Path(f"/proc/self/fd/{write_end}")
    finally:
        os.close(write_end)


@contextmanager
def pipe_without_reader():
    """The reader is there when the proxy starts, and gone when it writes."""
    with pipe() as (read_end, path):
        file = path.open("ab")
        os.close(read_end)
        with file:
            yield Path(f"/proc/self/fd/{file.fileno()}")


@contextmanager
def pipe_that_is_full():
    """The pipe is not read, and has no room for a single byte."""
    with pipe() as (read_end, path):
        file = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        fcntl.fcntl(file, fcntl.F_SETPIPE_SZ, 4096)
        os.write(file, b"x" * 4096)
        with pytest.raises(BlockingIOError):
            os.write(file, b"x")
        os.close(file)
        yield read_end, path
        os.close(read_end)


async def must_serve(proxy):
    """A small chat, one that is compacted, the proxy's own error; a loop that is blocked would answer none of them."""
    async with asyncio.timeout(60):
        assert (await ask(proxy, chat())).status == 200
    async with asyncio.timeout(60):
        compacted = await ask(proxy, WORK)
    assert (compacted.status, compacted.head.first("x-compaction")) == (200, "created")
    async with asyncio.timeout(60):
        assert fault_of(await page(proxy, "/nowhere"))["code"] == "not_found"
        assert (await page(proxy, "/health/ready")).status == 200


async def until_dropped(proxy):
    async with asyncio.timeout(60):
        while await metric(proxy, "log_lines_dropped_total") < 4:  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)


def config(up, form="json"):
    return {**settings({"base_url": up.url, "name": "lab", "window": 1_000_000}), "log": {"format": form}}


@pytest.mark.parametrize("output", [lambda: nullcontext(FULL), pipe_without_reader], ids=["full disk", "no reader"])
async def test_a_full_disk_and_a_reader_that_is_gone_cost_log_lines_only(up, serve, output):
    with output() as path:
        async with serve(None, config=config(up), standard_output=path) as proxy:
            await must_serve(proxy)
            await until_dropped(proxy)
            assert await metric(proxy, "listener_errors_total") == 0
        assert proxy.errors == ""


@pytest.mark.seconds
async def test_a_full_disk_does_not_stop_several_workers(up, serve):
    async with serve(up.url, "--workers", "2", standard_output=FULL) as proxy:
        for _ in range(4):
            assert (await ask(proxy, chat())).status == 200
    assert proxy.errors == ""


@pytest.mark.seconds
@pytest.mark.parametrize("form", ["json", "text"])
async def test_an_unread_pipe_blocks_no_request_and_no_exit(up, serve, form):
    with pipe_that_is_full() as (_, path):
        async with serve(None, config=config(up, form), standard_output=path) as proxy:
            await must_serve(proxy)
            proxy.process.terminate()
            assert await proxy.process.wait() == 0


async def test_a_reader_that_comes_late_gets_every_line(up, serve):
    with pipe_that_is_full() as (read_end, path):
        async with serve(None, config=config(up), standard_output=path) as proxy:
            await must_serve(proxy)
            os.set_blocking(read_end, False)
            text = b""
            async with asyncio.timeout(60):
                while b"/health" not in text and text.count(b'"event":"request"') < 3:
                    try:
                        text += os.read(read_end, 65536)
                    except BlockingIOError:
                        await asyncio.sleep(0.01)
            assert await metric(proxy, "log_lines_dropped_total") == 0
    lines = [json.loads(line) for line in text.lstrip(b"x").splitlines() if line.endswith(b"}")]
    assert {"listening", "request", "compaction-ended"} <= {line["event"] for line in lines}


@pytest.mark.seconds
async def test_a_standard_output_that_is_closed_gets_no_bytes_into_another_file(up, serve):
    """The number of a closed standard output is given to the next file that is opened, a database perhaps."""
    closed = ("sh", "-c", 'exec "$@" >&-', "sh")
    async with serve(None, config=config(up), prefix=closed) as proxy:
        await must_serve(proxy)
    assert proxy.errors == ""
    written = [path for path in proxy.state.rglob("*") if path.is_file() and b'"event":"request"' in path.read_bytes()]
    assert written == []
