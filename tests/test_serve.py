"""The server over real sockets: what it answers, what it refuses, and that nothing accepted is lost."""

import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from serving import FAMILY, GRAPH, call, metric, refused, running, untrained, wait_until

import deepen
from deepen.client import Client, ServerError
from deepen.service import open_models


@pytest.fixture(scope="module")
def server():
    with running([*open_models(["graph"], slots=8, most_waiting=64), untrained("logic")]) as address:
        yield address


def test_answers_are_those_of_the_reasoner(server):
    reasoner = deepen.load("graph")
    drawn = [one for hops in (1, 4, 12) for one in deepen.examples("graph", "cut", hops, num=6)]
    questions = [one.question for one in drawn]
    body = {"model": "graph", "questions": questions, "steps": 12, "trace": True}
    status, _, content = call(server, body)
    assert status == 200
    expected = reasoner.answer_many(questions, steps=12)
    for got, one in zip(content["answers"], expected, strict=True):
        assert got["steps"] == 12
        assert got["label"] == one.label
        assert got["trace"] == pytest.approx(one.trace, abs=1e-5)
    assert [one.label for one in expected] == [one.label for one in drawn]
    _, _, content = call(server, {"model": "graph", "question": questions[0]})
    alone = reasoner.answer(questions[0])
    (got,) = content["answers"]
    assert (got["steps"], got["trace"]) == (alone.steps, None), (
        "it halts by itself; no trace unless asked for"
    )
    _, _, content = call(server, {"model": "graph", "question": questions[0], "steps": 3, "halt": True})
    assert content["answers"][0]["steps"] == 3, "at most"


def test_the_model_is_found_by_the_form_of_the_question(server):
    for question, model in ((GRAPH, "graph"), ("T|F", "logic")):
        answer = call(server, {"question": question, "steps": 2})[2]
        named = call(server, {"question": question, "steps": 2, "model": model})[2]
        assert answer["answers"] == named["answers"]


def test_who_knows_all_tasks_is_asked_what_no_other_knows():
    with running([untrained("all"), untrained("logic")]) as address:
        for question, model in ((GRAPH, "all"), (FAMILY, "all"), ("T|F", "logic")):
            answer = call(address, {"question": question, "steps": 2})[2]
            named = call(address, {"question": question, "steps": 2, "model": model})[2]
            assert answer["answers"] == named["answers"]
        mixed = call(address, {"questions": ["T", GRAPH, FAMILY], "steps": 2})[2]
        assert (mixed["model"], len(mixed["answers"])) == ("all", 3)
        wide = {**GRAPH, "edges": [*GRAPH["edges"], *([k, k + 1] for k in range(512))]}
        found = refused(address, {"model": "all", "question": wide, "steps": 1})
        assert found[:2] == (413, "limit")
        assert "phrases" in found[2]
        long = {"model": "all", "question": "!" * 512 + "T", "steps": 1}
        assert refused(address, long)[:2] == (413, "limit")


def test_a_stream_has_every_step(server):
    body = {"model": "graph", "questions": [GRAPH, GRAPH], "steps": 4, "stream": True}
    status, headers, content = call(server, body)
    assert (status, headers.get_content_type()) == (200, "text/event-stream")
    events = [
        (name.removeprefix("event: "), json.loads(data.removeprefix("data: ")))
        for name, data in (event.split("\n") for event in content.decode().strip().split("\n\n"))
    ]
    trace = deepen.load("graph").answer(GRAPH, steps=4).trace
    for place in (0, 1):
        mine = [(name, data) for name, data in events if data["question"] == place]
        assert [name for name, _ in mine] == ["step"] * 4 + ["answer"]
        assert [data["probability"] for _, data in mine[:4]] == pytest.approx(trace, abs=1e-5)
        assert mine[-1][1]["label"] is True


REFUSALS = {
    "not JSON": (b'{"question', 400, "request", "not JSON"),
    "nothing": (b"", 422, "request", "Field required"),
    "deep": (b'{"question": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", 400, "request", "body"),
    "a list": ([], 422, "request", "dictionary"),
    "unknown key": ({"qestion": GRAPH}, 422, "request", "did you mean 'question'?"),
    "no question": ({"model": "graph"}, 422, "request", "either 'question' or 'questions'"),
    "both": ({"question": GRAPH, "questions": [GRAPH]}, 422, "request", "either"),
    "empty list": ({"model": "graph", "questions": []}, 422, "request", "empty list"),
    "no model": ({"question": FAMILY, "steps": 1}, 404, "model", "name a 'model': graph, logic"),
    "no form": ({"question": 5, "steps": 1}, 422, "question", "a question is a string"),
    "other model": ({"model": "x", "question": GRAPH}, 404, "model", "no model 'x' here"),
    "no steps": ({"model": "graph", "question": GRAPH, "steps": 0}, 422, "request", "steps"),
    "half a step": ({"model": "graph", "question": GRAPH, "steps": 1.5}, 422, "request", "steps"),
    "not a number": (b'{"model": "graph", "question": 1, "steps": NaN}', 422, "request", "steps"),
    "never": ({"model": "graph", "question": GRAPH, "halt": False}, 422, "request", "needs 'steps'"),
    "malformed": ({"model": "graph", "question": "T"}, 422, "question", "a graph question is a mapping"),
    "second": ({"model": "logic", "questions": ["T", "T&"], "steps": 1}, 422, "question", "question 1"),
    "no text": (b'{"model": "logic", "question": "\\ud800", "steps": 1}', 422, "question", "unknown symbol"),
    "many steps": ({"model": "graph", "question": GRAPH, "steps": 1001}, 413, "limit", "1001 steps"),
    "many questions": ({"model": "graph", "questions": [GRAPH] * 257, "steps": 1}, 413, "limit", "257"),
    "long": ({"model": "logic", "question": "!" * 512 + "T", "steps": 1}, 413, "limit", "513 symbols"),
    "many edges": (
        {"model": "graph", "question": {**GRAPH, "edges": [["a", "b"]] * 20_001}, "steps": 1},
        413,
        "limit",
        "20001 edges",
    ),
    "many nodes": (
        {"model": "graph", "question": {**GRAPH, "edges": [[k, -k] for k in range(1, 1500)]}, "steps": 1},
        413,
        "limit",
        "2998 nodes",
    ),
    "listed nodes": (
        {"model": "graph", "question": {**GRAPH, "nodes": list(range(2001))}, "steps": 1},
        413,
        "limit",
        "2001 nodes",
    ),
    "large": (b'{"question": "' + b"T" * 2**20 + b'"}', 413, "limit", "bytes"),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_bad_requests_are_refused_clearly(server, kind):
    body, status, name, words = REFUSALS[kind]
    got, its_name, message = refused(server, body)
    assert (got, its_name) == (status, name)
    assert words in message


def test_other_pages(server):
    assert call(server, None, "GET", "/healthz")[::2] == (200, b"ok")
    assert call(server, None, "GET", "/readyz")[::2] == (200, b"ok")
    _, _, content = call(server, None, "GET", "/v1/models")
    assert [one["name"] for one in content["models"]] == ["graph", "logic"]
    assert content["models"][0]["train_difficulties"] == [1, 5]
    status, _, grid = call(server, None, "GET", "/v1/models/graph/grid")
    assert status == 200
    assert grid["reach"] >= 24
    assert refused(server, None, method="GET", path="/v1/models/logic/grid")[:2] == (404, "model")
    assert refused(server, None, method="GET", path="/nowhere")[:2] == (404, "request")
    assert refused(server, None, method="GET", path="/v1/answer")[:2] == (405, "request")
    for path in ("/playground/..%2fserve.py", "/playground/nothing.js"):
        assert call(server, None, "GET", path)[0] == 404
    status, headers, page = call(server, None, "GET", "/")
    assert status == 200
    assert headers["content-security-policy"].startswith("default-src 'self'")
    for address in re.findall(rb'(?:src|href)="([^"#]+)"', page):
        assert call(server, None, "GET", address.decode())[0] == 200


def test_metrics(server):
    value = partial(metric, server)
    before = value('deepen_steps_total{model="graph"}')
    call(server, {"model": "graph", "questions": [GRAPH] * 3, "steps": 7})
    assert value('deepen_steps_total{model="graph"}') == before + 21
    assert value('deepen_queue_length{model="graph"}') == 0
    assert value('deepen_active_slots{model="graph"}') == 0
    assert value('deepen_questions_total{model="graph",outcome="answered"}') >= 3
    assert value('deepen_depth_steps_count{model="graph"}') >= 3
    assert value('deepen_latency_seconds_count{model="graph"}') >= 1


def test_a_key():
    with running([untrained("logic")], key="sésame") as address:
        body = {"question": "T", "steps": 1}
        assert refused(address, body)[:2] == (401, "key")
        assert refused(address, body, headers={"Authorization": "Bearer sesam"})[:2] == (401, "key")
        for scheme in ("Bearer", "bearer"):
            right = {"Authorization": f"{scheme} sésame".encode().decode("latin-1")}
            assert call(address, body, headers=right)[0] == 200
        url = "http://{}:{}".format(*address)
        assert Client(url, key="sésame").answer("T", steps=1).steps == 1
        assert call(address, None, "GET", "/v1/models")[0] == 401
        assert call(address, None, "GET", "/metrics")[0] == 401
        assert call(address, None, "GET", "/healthz")[0] == 200
        described = call(address, None, "GET", "/openapi.json")[2]
        assert described["paths"]["/v1/answer"]["post"]["security"] == [{"HTTPBearer": []}]


def test_a_full_queue_says_when_to_come_back():
    with running([untrained("logic", slots=2, most_waiting=4)]) as address:
        body = {"questions": ["T&F"] * 4, "steps": 300}
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda _: call(address, body), range(8)))
        statuses = [status for status, _, _ in results]
        assert set(statuses) == {200, 429}
        assert all(1 <= int(headers["Retry-After"]) <= 60 for status, headers, _ in results if status == 429)
        assert call(address, {"questions": ["T&F"] * 4, "steps": 3})[0] == 200, "it recovers at once"
        assert refused(address, {"questions": ["T"] * 5, "steps": 3})[:2] == (413, "limit"), "never"


def test_a_deadline_and_a_client_that_goes_away():
    one = untrained("logic")
    with running([one], steps=10**9) as address:
        body = {"question": "T&F", "steps": 10**8}
        began = time.monotonic()
        assert refused(address, {**body, "deadline_ms": 200})[:2] == (504, "deadline")
        assert time.monotonic() - began < 10
        for extra in ({}, {"stream": True}):
            gone = HTTPConnection(*address, timeout=60)
            gone.request("POST", "/v1/answer", json.dumps({**body, **extra}))
            wait_until(lambda: one.engine.active)
            gone.close()
            wait_until(lambda: not one.engine.active, seconds=10)


def test_who_comes_when_all_places_are_taken_is_refused_unread():
    """Once whoever had only sent the beginning of a request, to any path, took a place."""
    with running([untrained("logic", slots=2, most_waiting=1)], steps=10**9, body_seconds=2) as address:
        slow = [socket.create_connection(address) for _ in range(4)]
        for one in slow:
            one.sendall(b"POST /v1/answer HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
        assert call(address, {"question": "T&F", "steps": 2})[0] == 200
        long = {"question": "T&F", "steps": 10**8, "deadline_ms": 1500}
        with ThreadPoolExecutor(3) as pool:
            inside = [pool.submit(call, address, long) for _ in range(3)]
            while (found := call(address, b"nobody reads this"))[0] == 400:
                assert not all(one.done() for one in inside)
            status, headers, content = found
            assert (status, content["error"]["type"], headers["Retry-After"]) == (429, "full", "1")
            assert call(address, None, "GET", "/healthz")[0] == 200
        assert call(address, {"question": "T&F", "steps": 2})[0] == 200
        for one in slow:
            one.close()


def test_a_long_name_is_not_repeated_in_full():
    with running([untrained("logic")]) as address:
        assert len(refused(address, {"question": "T", "model": "x" * 100_000})[2]) <= 1_000


def test_nobody_thinks_for_a_client_that_does_not_read(monkeypatch):
    monkeypatch.setattr("deepen.serve.MOST_UNSENT", 50)
    one = untrained("logic")
    with running([one], send_buffer=4096, steps=10**9) as address:
        # So many that telling one after the other must not nest.
        body = json.dumps({"questions": ["T&F"] * 250, "steps": 10**8, "stream": True}).encode()
        with socket.create_connection(address) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            deaf.sendall(
                b"POST /v1/answer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            wait_until(lambda: one.engine.active)
            wait_until(lambda: not one.engine.active)


def test_what_fails_inside_is_logged_with_its_status(caplog):
    one = untrained("logic")
    with running([one]) as address, caplog.at_level("INFO", logger="deepen.serve"):
        one.engine.engine.thinkers.step = None
        assert refused(address, {"question": "T", "steps": 2})[:2] == (500, "internal")
    (fields,) = [record.fields for record in caplog.records if record.message == "request"]
    assert fields["status"] == 500


def test_the_limits_it_states_are_those_it_has():
    with running([untrained("logic", most_waiting=3)], questions=5) as address:
        most = call(address, None, "GET", "/v1/models")[2]["limits"]["questions"]
        assert most == 3
        assert call(address, {"questions": ["T"] * most, "steps": 1})[0] == 200
        assert refused(address, {"questions": ["T"] * (most + 1), "steps": 1})[:2] == (413, "limit")


def test_the_client_hears_that_its_request_is_too_large():
    with running([untrained("logic")]) as (host, port), pytest.raises(ServerError, match="bytes") as refusal:
        Client(f"http://{host}:{port}", retries=0).answer("T" * 6 * 2**20, steps=1)
    assert refusal.value.status == 413


def test_a_slow_or_torn_request():
    with running([untrained("logic")], body_seconds=0.3) as address:
        head = b"POST /v1/answer HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n"
        with socket.create_connection(address) as slow:
            slow.sendall(head + b'{"question"')
            assert b" 408 " in slow.recv(4096)
        with socket.create_connection(address) as torn:
            torn.sendall(head + b'{"question"')
        chunks = b"POST /v1/answer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        with socket.create_connection(address) as large:
            large.sendall(chunks)
            for _ in range(40):
                large.sendall(b"8000\r\n" + b"T" * 0x8000 + b"\r\n")
            large.sendall(b"0\r\n\r\n")
            assert b" 413 " in large.recv(4096)
        assert call(address, {"question": "T", "steps": 1})[0] == 200


def test_the_interface_is_as_documented():
    """schemathesis: requests made from the OpenAPI description, answers held against it."""
    with running([untrained("logic")]) as (host, port):
        schema = schemathesis.openapi.from_url(f"http://{host}:{port}/openapi.json")
        operations = [found.ok() for found in schema.get_all_operations()]
        assert {one.path for one in operations} >= {"/v1/answer", "/v1/models", "/metrics"}
        for operation in operations:

            @settings(
                max_examples=25,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy())
            def check(case):
                # What a question looks like inside is the task's business, not the description's.
                case.call_and_validate(
                    excluded_checks=[schemathesis.checks.CHECKS.get_one("positive_data_acceptance")]
                )

            check()
