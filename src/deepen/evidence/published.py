"""The paper's own figures: tables, figures, and the result files published with its code."""

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def published_figures() -> dict[str, Any]:
    """All of published.json."""
    content: dict[str, Any] = json.loads((files("deepen") / "evidence" / "published.json").read_text())
    return content
