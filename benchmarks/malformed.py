"""Requests that no server should fall over."""

import json
from functools import cache
from typing import Any


@cache
def malformed() -> dict[str, bytes]:
    """Thirty kinds of nonsense."""
    graph: dict[str, Any] = {"edges": [["a", "b"]], "source": "a", "target": "b"}

    def asking(question: Any, **rest: Any) -> bytes:
        return json.dumps({"question": question, "steps": 2, **rest}).encode()

    return {
        "empty": b"",
        "not JSON": b"hello",
        "torn": b'{"question": {"edges": [["a"',
        "bytes": bytes(range(256)),
        "no UTF-8": b'{"question": "\xff\xfe"}',
        "deep": b'{"question": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        "null": b"null",
        "list": b"[1, 2]",
        "number": b"1e400",
        "NaN": b'{"question": 1, "steps": NaN}',
        "digits": b'{"question": 1, "steps": ' + b"9" * 5000 + b"}",
        "surrogate": b'{"question": {"edges": [["\\ud800", "b"]], "source": "x", "target": "b"}, "steps": 1}',
        "no question": b'{"steps": 3}',
        "both": json.dumps({"question": graph, "questions": [graph]}).encode(),
        "unknown key": asking(graph, temperature=1),
        "no steps": asking(graph, steps=0),
        "negative": asking(graph, steps=-1),
        "text steps": asking(graph, steps="many"),
        "too many steps": asking(graph, steps=10**9),
        "deadline": asking(graph, deadline_ms=-5),
        "model": asking(graph, model="nothing"),
        "model type": asking(graph, model=["graph"]),
        "question type": asking("T&F"),
        "no source": asking({"edges": [["a", "b"]]}),
        "edge of three": asking({**graph, "edges": [["a", "b", "c"]]}),
        "edge of lists": asking({**graph, "edges": [[["a"], {"b": 1}]]}),
        "edges of text": asking({**graph, "edges": "ab"}),
        "unknown node": asking({**graph, "target": "z"}),
        "too many edges": asking({**graph, "edges": [["a", "b"]] * 20_001}),
        "too large": b'{"question": "' + b"T" * 2**20 + b'"}',
    }
