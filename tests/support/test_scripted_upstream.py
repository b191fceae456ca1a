"""The scripted upstream follows its script: what other tests rest on is tested here."""

import pytest

from tests.support import http_client
from tests.support.scripted_upstream import Upstream


async def test_a_script_that_fails_fails_the_test():
    upstream = await Upstream(lambda request: request.json["missing"]).__aenter__()
    with pytest.raises(ConnectionResetError):
        await http_client.send(
            upstream.url, http_client.request_bytes("POST", "/v1/x", ((b"content-length", b"2"),), b"{}")
        )

    with pytest.raises(ExceptionGroup, match="script"):
        await upstream.__aexit__()
