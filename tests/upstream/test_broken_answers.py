"""An answer that breaks off: what came of it before is handed on, even where it was not read until then."""

import pytest

from proxy.config.settings import Upstream as Settings
from proxy.foundation.errors import UpstreamBroke
from proxy.upstream.client import Call, Client
from tests.support.proxy_client import ask, chat, data_of, until
from tests.support.scripted_upstream import close, cut, delta, raw, stream


@pytest.mark.parametrize("peeks", [False, True])
@pytest.mark.parametrize("end", [cut(), close()], ids=["reset", "closed too early"])
async def test_data_before_the_end_is_read_before_the_fault_even_if_the_beginning_was_read_before(up, end, peeks):
    up.script = stream(delta(content="Half"), end)
    call = Call("GET", "/models", "", (), None)
    async with Client(Settings(base_url=up.url), lambda _: None) as client, client.send(call, None) as reply:
        if peeks:
            assert await reply.peek(lambda _: False) is None
        else:
            await until(lambda: reply._response.content.exception() is not None)  # nothing else tells it
        chunks = reply.chunks()
        assert await anext(chunks) == delta(content="Half")
        with pytest.raises(UpstreamBroke):
            await anext(chunks)


async def test_a_stream_that_names_its_encoding_identity_ends_in_an_error_where_it_breaks_off(serve, up):
    up.script = stream(delta(content="Half"), close(), headers=(("content-encoding", "identity"),))
    async with serve(up.url) as proxy:
        reply = await ask(proxy, chat(stream=True))
    (first, last) = data_of(reply.body.data)
    assert first["choices"][0]["delta"] == {"content": "Half"}
    assert "error" in last


async def test_a_switch_of_protocols_is_no_answer(up):
    up.script = raw(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n")
    call = Call("GET", "/models", "", (), None)
    async with Client(Settings(base_url=up.url), lambda _: None) as client:
        with pytest.raises(UpstreamBroke, match="another protocol"):
            await client.open(call, None)
