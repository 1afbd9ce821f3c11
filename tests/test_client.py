"""The client: what it sends, what it makes of answers, and when it tries again."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from serving import GRAPH, running, untrained

import deepen
from deepen.client import Client, ServerError
from deepen.service import open_models


def test_what_it_asks_and_hears():
    with running([*open_models(["graph"], slots=8, most_waiting=64), untrained("logic")]) as (host, port):
        client = Client(f"http://{host}:{port}/")
        assert [one["name"] for one in client.models()] == ["graph", "logic"]
        expected = deepen.load("graph").answer(GRAPH, steps=6)
        answer = client.answer(GRAPH, 6, model="graph")
        assert (answer.label, answer.steps) == (expected.label, expected.steps)
        assert answer.trace == pytest.approx(expected.trace, abs=1e-5)
        assert [step for step, _ in client.stream(GRAPH, 4, model="graph")] == [1, 2, 3, 4]
        assert client.answer_many([GRAPH] * 2, model="graph", trace=False)[1].trace == []
        assert client.answer(GRAPH, 100, model="graph", halt=True).steps < 100
        with pytest.raises(deepen.QuestionError, match="a logic question is a string"):
            client.answer(GRAPH, 6, model="logic")
        with pytest.raises(ServerError, match="no model 'x' here") as error:
            client.answer(GRAPH, 6, model="x")
        assert error.value.status == 404


def test_it_tries_again():
    tries = []

    class Busy(BaseHTTPRequestHandler):
        def do_GET(self):
            tries.append(self.path)
            if len(tries) == 1:
                return  # the connection just ends
            self.send_response(429 if len(tries) == 2 else 200)
            self.send_header("Retry-After", "0.01")
            self.end_headers()
            self.wfile.write(b'{"models": []}' if len(tries) > 2 else b"?")

        def log_message(self, *arguments):
            pass

    with HTTPServer(("127.0.0.1", 0), Busy) as busy:
        thread = threading.Thread(target=busy.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{busy.server_port}"
        assert Client(url).models() == []
        assert len(tries) == 3
        tries.clear()
        with pytest.raises(ServerError, match="no answer from"):
            Client(url, retries=0).models()
        busy.shutdown()
        thread.join()
    with pytest.raises(ServerError, match="no answer from") as error:
        Client(url, retries=0).models()
    assert error.value.status is None


def test_a_stream_that_breaks_off_is_no_answer():
    class Torn(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'event: step\ndata: {"question": 0, "step": 1, "probability": 0.5}\n\n')

        def log_message(self, *arguments):
            pass

    with HTTPServer(("127.0.0.1", 0), Torn) as torn:
        thread = threading.Thread(target=torn.handle_request)
        thread.start()
        stream = Client(f"http://127.0.0.1:{torn.server_port}").stream(GRAPH, 3)
        assert next(stream) == (1, 0.5)
        with pytest.raises(ServerError, match="broke off"):
            next(stream)
        thread.join()
