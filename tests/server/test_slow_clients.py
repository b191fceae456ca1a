"""Clients that read nothing for a while: no comment is written to them then, and none behind the end of an answer."""

import asyncio
import socket
from contextlib import closing

import pytest

from tests.support import http_client
from tests.support.gateway_in_process import GatewayInProcess, Listening
from tests.support.proxy_client import chat, request, until
from tests.support.scripted_upstream import DONE, delta, finish, stream

HEARTBEAT_SECONDS = 0.1
SOCKET_BYTES = 4096


class WithoutBuffers(Listening):
    """A server that holds almost nothing for a client: a write waits until the client has read what came before."""

    transport = None

    async def _handle(self, request):
        self.transport = request.transport
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        self.transport.set_write_buffer_limits(high=0)
        return await super()._handle(request)


async def connect(origin):
    """A connection of a client that takes little before it reads."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
    sock.connect(("127.0.0.1", int(origin.rpartition(":")[2])))
    return await asyncio.open_connection(sock=sock)


@pytest.mark.seconds
@pytest.mark.parametrize("events", [50, 500], ids=["at-the-end", "in-the-middle"])
async def test_while_a_write_waits_for_the_client_no_comment_is_written_and_none_behind_the_end(up, tmp_path, events):
    """The first write that waits for a client comes at the end of a short stream, and in the middle of a long one."""
    sent = delta(content="x" * 800) * events + finish() + DONE
    up.script = stream(sent)
    async with GatewayInProcess(up, tmp_path, listen={"heartbeat_seconds": HEARTBEAT_SECONDS}) as served:
        listening = WithoutBuffers(served)
        listening.app.gateway = served.new_gateway()
        async with listening.listening():
            reader, writer = await connect(listening.origin)
            with closing(writer):
                writer.write(request(body=chat(stream=True)))
                writer.transport.pause_reading()
                await until(lambda: listening.transport and listening.transport.get_write_buffer_size())
                await asyncio.sleep(5 * HEARTBEAT_SECONDS)
                writer.transport.resume_reading()
                first = await http_client.read_answer(reader)
                writer.write(request(body=chat(stream=True)))
                second = await http_client.read_answer(reader)
        await served.retire(listening.app.gateway)
    assert [first.status, second.status] == [200, 200]
    assert first.body.data == second.body.data == sent
