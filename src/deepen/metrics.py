"""What Prometheus is told: how long the queues are, how many think, how fast, how deep and how long."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from deepen.engine import Ask, Numbers
from deepen.service import Service

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

NOW: dict[str, tuple[str, Callable[[Numbers], float]]] = {
    "deepen_queue_length": ("Questions that wait for a slot", lambda now: now.waiting),
    "deepen_active_slots": ("Questions that think", lambda now: now.active),
    "deepen_steps_a_second": ("Recent speed, everyone together", lambda now: now.steps_a_second),
}


class Metrics:
    """The numbers of one server."""

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Engines(service))
        histogram = partial(Histogram, labelnames=["model"], registry=self._registry)
        self._latency = histogram("deepen_latency_seconds", "From request to answer", buckets=SECONDS)
        self._depth = histogram("deepen_depth_steps", "Steps of answered questions", buckets=STEPS)
        self._outcomes = Counter(
            "deepen_questions",
            "Questions taken, by how they ended",
            ["model", "outcome"],
            registry=self._registry,
        )

    def answered(self, model: str, asks: Sequence[Ask], seconds: float) -> None:
        """Note how a request ended."""
        self._latency.labels(model).observe(seconds)
        for ask in asks:
            outcome = "cancelled"
            if ask.future.done() and not ask.future.cancelled():
                outcome = "failed" if ask.future.exception() else "answered"
            self._outcomes.labels(model, outcome).inc()
            if outcome == "answered":
                self._depth.labels(model).observe(ask.steps)

    def exposed(self) -> bytes:
        """In Prometheus' own format."""
        return generate_latest(self._registry)


class _Engines(Collector):
    """What the engines know at this moment."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        engines = {model: served.engine for model, served in self._service.by_name.items()}
        now = {model: engine.numbers() for model, engine in engines.items()}
        for name, (about, value) in NOW.items():
            yield _gauge(name, about, {model: value(numbers) for model, numbers in now.items()})
        yield _gauge(
            "deepen_slots", "Questions that can think at once", {m: e.slots for m, e in engines.items()}
        )
        steps = CounterMetricFamily("deepen_steps", "Thinking steps taken", labels=["model"])
        for model, numbers in now.items():
            steps.add_metric([model], numbers.steps_taken)
        yield steps


def _gauge(name: str, about: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, about, labels=["model"])
    for model, value in values.items():
        gauge.add_metric([model], value)
    return gauge
