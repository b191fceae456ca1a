"""A relay between the proxy and its object store that can lose, delay and refuse what passes.

with weather(s3.url) as sky:
    sky.now = down                     # nothing is answered any more
    sky.now = refusing(503, "SlowDown")
    sky.now = slow(2.0)
    sky.now = clear
    sky.asked                          # every request line that came
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


class _Gone(Exception):
    """The line is cut before an answer."""


def clear(_number: int) -> None:
    """Everything passes."""


def down(_number: int) -> None:
    raise _Gone


def refusing(status: int, code: str, *headers: tuple[str, str], more: str = "") -> Callable[[int], Answer]:
    said = f"<Error><Code>{code}</Code><Message>What you signed was never-to-be-told</Message>{more}</Error>"
    return telling(said.encode(), status, *headers)


def telling(data: bytes, status: int = 200, *headers: tuple[str, str]) -> Callable[[int], Answer]:
    return lambda _number: (status, [("content-type", "application/xml"), *headers], data)


def slow(seconds: float) -> Callable[[int], None]:
    return lambda _number: time.sleep(seconds)


def changing(*skies: Callable) -> Callable:
    """One request after the other."""
    return lambda number: skies[number % len(skies)](number)


class Sky(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, behind: str) -> None:
        super().__init__(("127.0.0.1", 0), _Relay)
        self.behind = urlsplit(behind).netloc
        self.now = clear
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """The client was killed in between."""


class _Relay(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for the acknowledgement of its head
    server: Sky

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        number = len(self.server.asked)
        self.server.asked.append(f"{self.command} {self.path}")
        try:
            status, headers, data = self.server.now(number) or self._behind(body)
        except (_Gone, OSError, http.client.HTTPException):
            self.close_connection = True
            return
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_DELETE = do_POST = _pass  # noqa: N815 (the library's names)

    def _behind(self, body: bytes) -> Answer:
        with closing(http.client.HTTPConnection(self.server.behind, timeout=30)) as line:
            line.request(self.command, self.path, body, dict(self.headers))
            answer = line.getresponse()
            data = answer.read()
        dropped = {"content-length", "transfer-encoding", "connection", "server", "date"}
        return answer.status, [pair for pair in answer.getheaders() if pair[0].lower() not in dropped], data

    def log_message(self, *_: object) -> None:
        """Not on the terminal."""


@contextmanager
def weather(behind: str, tls: ssl.SSLContext | None = None) -> Iterator[Sky]:
    sky = Sky(behind)
    if tls is not None:
        sky.socket = tls.wrap_socket(sky.socket, server_side=True)
    thread = threading.Thread(target=sky.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield sky
    finally:
        sky.shutdown()
        sky.server_close()
        thread.join()
