"""What Prometheus reads at `/metrics`. Labels have few values: endpoints, not paths of requests."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """The counters of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        seconds = partial(Histogram, registry=self.registry, buckets=_SECONDS)
        by_endpoint = ["endpoint"]
        self.requests = counter(
            "gbnf_requests", "Requests by endpoint and HTTP status.", ["endpoint", "status"]
        )
        self.cancelled = counter("gbnf_requests_cancelled", "Requests whose client left.", by_endpoint)
        self.seconds = seconds(
            "gbnf_request_seconds", "Time from a request to the end of its answer.", by_endpoint
        )
        self.first_seconds = seconds(
            "gbnf_first_delta_seconds", "Time from a request to the first event of its answer.", by_endpoint
        )
        self.queue_seconds = seconds("gbnf_queue_seconds", "Time in the queue.")
        self.running = gauge("gbnf_requests_running", "Answers being made.")
        self.waiting = gauge("gbnf_requests_waiting", "Requests in the queue.")
        self.memory = gauge("gbnf_request_bytes", "Memory that requests reserve.")
        self.tokens = counter("gbnf_tokens", "Tokens by kind.", ["kind"])
        self.grammar_ignored = counter(
            "gbnf_grammar_ignored", "Answers of a backend that ignored the grammar."
        )
        self.loosened_tools = counter("gbnf_loosened_tools", "Tools whose schema could not be compiled.")
        self.upstreams = gauge("gbnf_upstream_healthy", "1 for an upstream that is used.", ["upstream"])

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
