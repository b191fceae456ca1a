"""The writer in the background: `put` never waits, what does not fit is counted, the end is bounded."""

import threading

from proxy.foundation.lifetime import BackgroundWriter


class Sink:
    def __init__(self):
        self.lines = []
        self.opened = threading.Event()
        self.opened.set()
        self.entered = threading.Event()

    def write(self, lines):
        self.entered.set()
        self.opened.wait()
        self.lines += lines
        return 0


def test_lines_are_written_in_order_and_close_waits_for_them():
    sink = Sink()
    writer = BackgroundWriter("test", sink.write)
    lines = [b"%d\n" % number for number in range(1_000)]
    for line in lines:
        writer.put(line, len(line))
    writer.close(5)
    assert sink.lines == lines
    assert writer.dropped == 0


def test_a_sink_that_hangs_bounds_the_queue_in_bytes_and_the_end_in_time():
    sink = Sink()
    sink.opened.clear()
    writer = BackgroundWriter("test", sink.write, limit=100)
    writer.put(b"first", len(b"first"))
    assert sink.entered.wait(30)
    for _ in range(30):
        writer.put(b"x" * 10, len(b"x" * 10))
    assert writer.dropped == 20
    assert not writer.flush(0.1)
    writer.close(0.1)
    sink.opened.set()


def test_after_the_end_lines_are_dropped():
    writer = BackgroundWriter("test", Sink().write)
    writer.close(1)
    writer.put(b"late", len(b"late"))
    assert writer.dropped == 1


def test_lines_that_a_sink_could_not_write_are_counted():
    writer = BackgroundWriter("test", len)
    writer.put(b"a", len(b"a"))
    writer.put(b"b", len(b"b"))
    writer.close(1)
    assert writer.dropped == 2


def test_a_sink_that_raises_costs_its_lines_and_not_the_thread(monkeypatch):
    written, reported = [], threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: reported.set())

    def sink(lines):
        if lines == [b"bad"]:
            raise ValueError
        written.extend(lines)
        return 0

    writer = BackgroundWriter("test", sink)
    writer.put(b"bad", len(b"bad"))
    assert reported.wait(5)
    writer.put(b"good", len(b"good"))
    assert writer.flush(5)
    writer.close(1)
    assert written == [b"good"]
    assert writer.dropped == 1
