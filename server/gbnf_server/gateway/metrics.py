"""What Prometheus reads at `/metrics`. Labels have few values: endpoints, not paths of requests."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """The counters of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.requests = Counter(
            "gbnf_requests",
            "Requests by endpoint and HTTP status.",
            ["endpoint", "status"],
            registry=registry,
        )
        self.cancelled = Counter(
            "gbnf_requests_cancelled", "Requests whose client left.", ["endpoint"], registry=registry
        )
        self.seconds = Histogram(
            "gbnf_request_seconds",
            "Time from a request to the end of its answer.",
            ["endpoint"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.first_seconds = Histogram(
            "gbnf_first_delta_seconds",
            "Time from a request to the first event of its answer.",
            ["endpoint"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.queue_seconds = Histogram(
            "gbnf_queue_seconds", "Time in the queue.", buckets=_SECONDS, registry=registry
        )
        self.running = Gauge("gbnf_requests_running", "Answers being made.", registry=registry)
        self.waiting = Gauge("gbnf_requests_waiting", "Requests in the queue.", registry=registry)
        self.memory = Gauge("gbnf_request_bytes", "Memory that requests reserve.", registry=registry)
        self.tokens = Counter("gbnf_tokens", "Tokens by kind.", ["kind"], registry=registry)
        self.grammar_ignored = Counter(
            "gbnf_grammar_ignored", "Answers of a backend that ignored the grammar.", registry=registry
        )
        self.loosened_tools = Counter(
            "gbnf_loosened_tools", "Tools whose schema could not be compiled.", registry=registry
        )
        self.upstreams = Gauge(
            "gbnf_upstream_healthy", "1 for an upstream that is used.", ["upstream"], registry=registry
        )

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
