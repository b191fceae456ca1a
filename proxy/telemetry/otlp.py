"""OTLP messages of log lines and metrics, and attributes of any value."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric

from proxy import events
from proxy.telemetry.lines import make_line
from proxy.telemetry.metrics import PREFIX, Series
from proxy.telemetry.output import encode_json

SEVERITY_NUMBERS = {"debug": 5, "info": 9, "warning": 13, "error": 17}
"""https://opentelemetry.io/docs/specs/otel/logs/data-model/#field-severitynumber"""
Attributes = Mapping[str, str | bool | int | float | None]


def make_log_records(at: int, event: events.Event) -> Iterator[LogRecord]:
    """The line of the log about this event, with its trace if there is one."""
    line = make_line(event)
    if line is None:
        return
    severity, name, fields = line
    trace = getattr(event, "trace", None)
    yield LogRecord(
        time_unix_nano=at,
        severity_number=SEVERITY_NUMBERS[severity],  # type: ignore[arg-type] # protobuf takes the number
        severity_text=severity,
        body=AnyValue(string_value=name),
        event_name=f"compaction_proxy.{name}",
        attributes=make_attributes(fields),
        trace_id=bytes.fromhex(trace.trace_id) if trace is not None else b"",
        span_id=bytes.fromhex(trace.span_id) if trace is not None else b"",
    )


def make_metric(series: Series, values: Mapping[tuple[str, ...], Sequence[float]], start: int, at: int) -> Metric:
    metric = Metric(name=PREFIX + series.name.removesuffix("_total"), description=series.help)
    cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    for labels, numbers in values.items():
        attributes = make_attributes(dict(zip(series.labels, labels, strict=True)))
        times = {"start_time_unix_nano": start, "time_unix_nano": at}
        if series.buckets:
            *counts, total = numbers
            metric.histogram.aggregation_temporality = cumulative
            metric.histogram.data_points.add(
                attributes=attributes, count=int(sum(counts)), sum=total, bucket_counts=map(int, counts),
                explicit_bounds=series.buckets, **times,
            )  # fmt: skip
        elif series.kind == "gauge":
            metric.gauge.data_points.add(attributes=attributes, as_double=numbers[0], time_unix_nano=at)
        else:
            metric.sum.aggregation_temporality, metric.sum.is_monotonic = cumulative, True
            metric.sum.data_points.add(attributes=attributes, as_double=numbers[0], **times)
    return metric


def make_attributes(values: Mapping[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_any_value(value)) for key, value in values.items() if value is not None]


def _any_value(value: object) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int() if value.bit_length() < 64:  # noqa: PLR2004 (a protobuf integer)
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=make_text(value))
        case _:
            return AnyValue(string_value=encode_json({"value": value})[9:-1].decode("utf-8", "replace"))


def make_text(value: str) -> str:
    """A text that protobuf can hold: not half a surrogate pair, which a client may send as a model's name."""
    return value.encode("utf-8", "replace").decode()
