"""A relay between the proxy and its object store that can lose, delay and refuse what passes.

with faulty_relay(s3.url) as relay:
    relay.now = drop_connection                 # or refuse_with(503, "SlowDown"), delay(2.0), pass_through
    relay.asked                                 # every request line that came
"""

import http.client
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

Answer = tuple[int, list[tuple[str, str]], bytes]


class _ConnectionDropped(Exception):
    """The line is cut before an answer."""


def pass_through(_number: int) -> None:
    """Everything passes."""


def drop_connection(_number: int) -> None:
    raise _ConnectionDropped


def refuse_with(status: int, code: str, *headers: tuple[str, str], more: str = "") -> Callable[[int], Answer]:
    body = f"<Error><Code>{code}</Code><Message>What you signed was never-to-be-told</Message>{more}</Error>"
    return answer_with(body.encode(), status, *headers)


def answer_with(data: bytes, status: int = 200, *headers: tuple[str, str]) -> Callable[[int], Answer]:
    return lambda _number: (status, [("content-type", "application/xml"), *headers], data)


def delay(seconds: float) -> Callable[[int], None]:
    return lambda _number: time.sleep(seconds)


def alternate(*behaviors: Callable) -> Callable:
    return lambda number: behaviors[number % len(behaviors)](number)


class FaultyRelay(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, upstream_host: str) -> None:
        super().__init__(("127.0.0.1", 0), _Relay)
        self.upstream_host = urlsplit(upstream_host).netloc
        self.now = pass_through
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """The client was killed in between."""


class _Relay(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for the acknowledgement of its head
    server: FaultyRelay

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        number = len(self.server.asked)
        self.server.asked.append(f"{self.command} {self.path}")
        try:
            status, headers, data = self.server.now(number) or self._forward(body)
        except (_ConnectionDropped, OSError, http.client.HTTPException):
            self.close_connection = True
            return
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_DELETE = do_POST = _pass  # noqa: N815 (the library's names)

    def _forward(self, body: bytes) -> Answer:
        with closing(http.client.HTTPConnection(self.server.upstream_host, timeout=30)) as line:
            line.request(self.command, self.path, body, dict(self.headers))
            answer = line.getresponse()
            data = answer.read()
        dropped = {"content-length", "transfer-encoding", "connection", "server", "date"}
        return answer.status, [pair for pair in answer.getheaders() if pair[0].lower() not in dropped], data

    def log_message(self, *_: object) -> None:
        """Not on the terminal."""


@contextmanager
def faulty_relay(upstream_host: str, tls: ssl.SSLContext | None = None) -> Iterator[FaultyRelay]:
    relay = FaultyRelay(upstream_host)
    if tls is not None:
        relay.socket = tls.wrap_socket(relay.socket, server_side=True)
    thread = threading.Thread(target=relay.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        relay.shutdown()
        relay.server_close()
        thread.join()
