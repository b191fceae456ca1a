"""The path of a request within the test's own process, and faults put into it at a chosen await.

async with GatewayInProcess(up, tmp_path) as served:
    await served.relay(served.call(messages))       # without a socket of a client
    await Interruption(3, cancel).run(coroutine)    # cancelled at its third suspension
"""

import asyncio
from contextlib import asynccontextmanager
from time import perf_counter

from aiohttp import web

from proxy.access.registry import Records
from proxy.config.settings import Config
from proxy.config.settings import Upstream as Settings
from proxy.events import FailedOpen, InternalFault, RequestFinished, StoreFailed, TurnEnded
from proxy.foundation.lifetime import BackgroundTasks
from proxy.serve.compactor import Compactor
from proxy.serve.gateway import Gateway
from proxy.serve.services import Keeper, Services
from proxy.server.connection import App, HttpServer
from proxy.store.memory_store import MemoryStore
from proxy.telemetry.metrics import Metrics
from proxy.upstream.client import Call
from tests.support.messages import body
from tests.support.proxy_client import until


class WithoutSocket:
    """A request as the server would lend it to the gateway. What is delivered is collected."""

    def __init__(self, call, chunks, hold=None):
        self.method, self.headers, self.peer = call.method, call.headers, "127.0.0.1"
        self.path, self.query = call.path, call.query
        self._call, self._chunks, self._hold = call, chunks, hold

    async def read_body(self, _limits, _record):
        return self._call.body

    def stream_body(self, _limits, _record):
        """Of what is no chat, which is read whole, without a body."""
        assert not self._call.body, "chats are read whole"

    async def deliver(self, answer, _limits, _record):
        if self._hold is not None:
            await self._hold()
        async for chunk in answer.body():
            self._chunks.append(chunk)


class GatewayInProcess:
    """A gateway with real connections to an upstream, as a worker has it. Leaving the block needs all leases back."""

    def __init__(self, up, place, store=None, policies=None, listen=None, *, teams=None, others=(), **settings):
        self.events, self.notes = [], BackgroundTasks(10)
        self.services = Services(store or MemoryStore(), Keeper(), self.events.append)
        self.compactor = Compactor(self.services)
        upstream = Settings(**{"name": "up", "base_url": up.url, "window": 64_000, **settings})
        parts = {"policies": policies, "listen": listen, "teams": teams}
        given = {name: values for name, values in parts.items() if values}
        self.config = Config(upstreams=[upstream, *others], state={"dir": str(place)}, **given)
        self.records = Records(place)
        self.gateway = self.new_gateway()

    def new_gateway(self):
        return Gateway(self.config, self.compactor, self.records, self.events.append, self.notes)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.retire(self.gateway)
        await self.notes.close(2)
        await self.services.close()

    async def retire(self, gateway):
        """Returns once all leases on a gateway are back and its connections are closed."""
        gateway.retire()
        async with asyncio.timeout(60):
            await self.notes.wait_idle()
            await asyncio.gather(*(client.wait_closed() for client in gateway.clients.values()))

    def call(self, messages, key="sk-a", headers=(), **more):
        sent = body(messages, stream=True, **more)
        return Call("POST", "/chat/completions", "", (("authorization", f"Bearer {key}"), *headers), sent)

    async def relay(self, call, gateway=None):
        """What the server does with a request, without a socket."""
        record, chunks = RequestFinished("cp-1", "POST", "/v1/chat/completions", received_at=perf_counter()), []
        await (gateway or self.gateway).serve(WithoutSocket(call, chunks), record)
        return b"".join(chunks)

    @property
    def turns(self):
        return [event for event in self.events if isinstance(event, TurnEnded)]

    @property
    def faults(self):
        return [event for event in self.events if isinstance(event, InternalFault | FailedOpen | StoreFailed)]


async def connections_closed(up):
    await until(lambda: not up.connections)


def cancel(waited_for):
    """As when the client leaves: what is awaited is cancelled, and the task with it."""
    asyncio.current_task().cancel()
    return waited_for


def fail(waited_for):
    """As when what is awaited raises."""
    if waited_for is not None:
        waited_for.cancel()
    raise OSError("injected")


class Interruption:
    """Runs a coroutine, and interrupts it at its suspension of this number; `happened` says whether it got so far."""

    def __init__(self, number, interrupt):
        self.number = number
        self._interrupt = interrupt
        self.suspensions = 0

    @property
    def happened(self):
        return self.suspensions >= self.number

    async def run(self, coroutine):
        return await _InterruptibleTask(self, coroutine)

    def count_suspension(self, waited_for):
        self.suspensions += 1
        return self._interrupt(waited_for) if self.suspensions == self.number else waited_for


class _InterruptibleTask:
    def __init__(self, interruption, coroutine):
        self._interruption = interruption
        self._coroutine = coroutine

    def __await__(self):
        inner = self._coroutine.__await__()
        resume = inner.send, None
        while True:
            act, value = resume
            try:
                waited_for = act(value)
            except StopIteration as end:
                return end.value
            try:
                resume = inner.send, (yield self._interruption.count_suspension(waited_for))
            except BaseException as fault:  # noqa: BLE001 (a cancellation, too, goes on into the coroutine)
                resume = inner.throw, fault


class Listening:
    """An HTTP server on a port, whose handler is interrupted where a test says so. A client takes it for a proxy."""

    origin: str

    def __init__(self, served):
        self.served = served
        self.app = App(
            served.gateway,
            served.events.append,
            Metrics(),
            None,
            self._no_admin,
            can_keep_originals=lambda: True,
            can_write_state=self._can_write_state,
        )
        self.interruption = Interruption(0, cancel)

    async def _can_write_state(self):
        return True

    async def _no_admin(self, _):
        raise NotImplementedError

    async def _handle(self, request):
        return await self.interruption.run(self.app(request))

    @asynccontextmanager
    async def listening(self):
        settings = {"handler_cancellation": True, "access_log": None, "auto_decompress": False}
        runner = web.ServerRunner(HttpServer(self._handle, self.served.events.append, **settings))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            self.origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()
