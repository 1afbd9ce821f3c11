"""Where the shipped models break: questions of other kinds, each answered until the model stops.

    python experiments/frontier/limits.py [TASK ...] [--num 400]

Every answer is held against the task's verifier. What was measured of a checkpoint that is not shipped any
more is measured again. Writes limits.json and the table in README.md.
"""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import networkx as nx
from training import one_of, parser_of, settings_of

from deepen.progress import Bar
from deepen.reasoner import Reasoner, load
from deepen.report import fill_page
from deepen.runs import write_atomically
from deepen.stats import wilson
from deepen.tasks import Example, examples, get_task
from deepen.tasks.family_samplers import OFFSETS, WORDS

HERE = Path(__file__).parent
STORED = HERE / "limits.json"
Make = Callable[[int], list[Any]]
"""So many questions."""


def drawn(task: str, distribution: str, difficulty: int) -> Make:
    """As they come: what the rows below are to be compared with."""
    return lambda num: [one.question for one in examples(task, distribution, difficulty, num=num)]


def changed(task: str, difficulty: int, change: Callable[[Random, Example], Any]) -> Make:
    """Certified questions, changed."""

    def make(num: int) -> list[Any]:
        found = examples(task, "certified", difficulty, num=num)
        return [change(Random(number), one) for number, one in enumerate(found)]

    return make


def made(one: Callable[[Random, int], Any]) -> Make:
    """Questions of another make; `one` is told which."""
    return lambda num: [one(Random(number), number) for number in range(num)]


def both_ways(rng: Random, number: int) -> Any:
    """A tree of 40 nodes, or two trees, every edge in both directions; source and target are 8 apart."""
    while True:
        tree = nx.from_prufer_sequence([rng.randrange(40) for _ in range(38)])
        far = [(a, b) for a, row in nx.all_pairs_shortest_path_length(tree) for b in row if row[b] == 8]
        if far:
            break
    source, target = rng.choice(far)
    if number % 2:
        tree.remove_edge(*rng.choice(list(pairwise(nx.shortest_path(tree, source, target)))))
    edges = [[a, b] for edge in tree.edges for a, b in (edge, edge[::-1])]
    return {"nodes": list(tree), "edges": edges, "source": source, "target": target}


def crowded(num_others: int) -> Callable[[Random, Example], Any]:
    """So many nodes that nothing leads to have an edge to every other."""

    def change(rng: Random, example: Example) -> Any:
        question = example.question
        known = sorted({node for edge in question["edges"] for node in edge})
        others = [f"other {place}" for place in range(num_others)]
        edges = [[other, node] for other in others for node in known]
        nodes = [*question.get("nodes", known), *others]
        return {**question, "nodes": nodes, "edges": [*question["edges"], *edges]}

    return change


def flat(rng: Random, number: int) -> str:
    """60 literals in a row, no parentheses; true and false take turns."""
    while True:
        literals = [rng.choice(("T", "F", "!T", "!F")) for _ in range(60)]
        text = "".join(part for literal in literals for part in (literal, rng.choice("&&&|")))[:-1]
        if get_task("logic").verify(text) == (number % 2 == 0):
            return text


def balanced(depth: int) -> Callable[[Random, int], str]:
    """Groups on both sides of every operator."""

    def group(rng: Random, levels: int) -> str:
        if not levels:
            return rng.choice("TF")
        sides = [group(rng, levels - 1) for _ in range(2)]
        return f"{rng.choice(('', '!'))}({rng.choice('&|').join(sides)})"

    return lambda rng, number: group(rng, depth)


def denied(rng: Random, example: Example) -> str:
    """A few more negations before every group."""
    return "".join(
        "!" * rng.randint(0, 3) + symbol if symbol == "(" else symbol for symbol in example.question
    )


def padded(rng: Random, example: Example) -> str:
    """Five more literals behind every operator, which leave the value as it is: several phrases a group."""
    found = ""
    for symbol, after in pairwise(example.question + " "):
        found += symbol
        if symbol in "&|" and after not in "&|":
            found += ("T&" if symbol == "&" else "F|") * 5
    return found


def _turned(fact: str) -> str:
    """The same, told by the other person."""
    subject, relation, other = re.split(" is the | of ", fact)
    opposite = {word: WORDS[-offset] for word, offset in OFFSETS.items()}[relation]
    return f"{other} is the {opposite} of {subject}"


def turned_round(share: float) -> Callable[[Random, Example], Any]:
    """Some facts told by the other person: Bo is the child of Ann, for Ann is the parent of Bo."""

    def change(rng: Random, example: Example) -> Any:
        facts = [_turned(fact) if rng.random() < share else fact for fact in example.question["facts"]]
        return {**example.question, "facts": facts}

    return change


def two_families(rng: Random, example: Example) -> Any:
    """About the first person of one chain and the last of another: nothing links them."""
    subject, relation, _ = re.split(" is the | of ", example.question["query"])
    return {**example.question, "query": f"{subject} is the {relation} of {example.certificate['twin'][-1]}"}


QUESTIONS: dict[str, dict[str, Make]] = {
    "graph": {
        "certified, 12 hops": drawn("graph", "certified", 12),
        "trees, every edge in both directions, 8 hops": made(both_ways),
        "certified, 12 hops, 20 unreached in-neighbours everywhere": changed("graph", 12, crowded(20)),
        "certified, 12 hops, 200 unreached in-neighbours everywhere": changed("graph", 12, crowded(200)),
    },
    "logic": {
        "certified, depth 8": drawn("logic", "certified", 8),
        "published, depth 14": drawn("logic", "paper", 14),
        "60 literals, no parentheses": made(flat),
        "groups on both sides, depth 5": made(balanced(5)),
        "groups on both sides, depth 7": made(balanced(7)),
        "certified, depth 8, negations before every group": changed("logic", 8, denied),
        "certified, depth 8, long groups": changed("logic", 8, padded),
    },
    "family": {
        "certified, depth 5": drawn("family", "certified", 5),
        "published, depth 5": drawn("family", "paper", 5),
        "certified, depth 3, a tenth of the facts turned round": changed("family", 3, turned_round(0.1)),
        "certified, depth 3, half of the facts turned round": changed("family", 3, turned_round(0.5)),
        "certified, depth 5, two families": changed("family", 5, two_families),
    },
}


# The one model reads each of 600 or 5,600 edges as a phrase that looks at every other: it is spared these.
TOO_LONG_TO_TELL = [f"certified, 12 hops, {num} unreached in-neighbours everywhere" for num in (20, 200)]


def of_shipped(reasoner: Reasoner) -> dict[str, Any]:
    """What a stored row must agree with, so as to be about the model that is shipped now."""
    return {"run_id": reasoner.config.run_id, "settings": settings_of(reasoner.config)}


def measured(task: str, name: str, num: int) -> list[dict[str, Any]]:
    """Accuracy and both rates of a shipped model on every kind of question of a task."""
    reasoner, rows = load(name), []
    kinds = [kind for kind in QUESTIONS[task] if name == task or kind not in TOO_LONG_TO_TELL]
    with Bar(f"limits of {name} on {task}", len(kinds)) as bar:
        for place, kind in enumerate(kinds, start=1):
            questions = QUESTIONS[task][kind](num)
            truths = [get_task(task).verify(question) for question in questions]
            answers = reasoner.answer_many(questions)
            right = [answer.label == truth for answer, truth in zip(answers, truths, strict=True)]
            of = {
                label: [ok for ok, truth in zip(right, truths, strict=True) if truth == label]
                for label in (True, False)
            }
            rows.append(
                {
                    "task": task,
                    "model": name,
                    **of_shipped(reasoner),
                    "kind": kind,
                    "accuracy": mean(right),
                    "true_positive_rate": mean(of[True]) if of[True] else None,
                    "true_negative_rate": mean(of[False]) if of[False] else None,
                    "positives": len(of[True]),
                    "steps": mean(answer.steps for answer in answers),
                    "num": num,
                }
            )
            bar.show(place)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The task's own model, and beside it the one for all."""
    figures = ("accuracy", "95 % interval", "of yes (n)", "of no (n)", "mean steps")
    names = ("task", "questions", *figures, *(f"one model: {figure}" for figure in figures))
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    together = {(row["task"], row["kind"]): row for row in rows if row["model"] == "all"}
    for row in rows:
        if row["model"] != "all":
            one = together.get((row["task"], row["kind"]))
            columns = (row["task"], row["kind"], *figures_of(row), *(figures_of(one) if one else [""] * 5))
            lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines)


def figures_of(row: dict[str, Any]) -> list[str]:
    low, high = wilson(row["accuracy"], row["num"])
    rates = [
        (row["true_positive_rate"], row["positives"]),
        (row["true_negative_rate"], row["num"] - row["positives"]),
    ]
    shown = ["" if rate is None else f"{rate:.3f} ({num})" for rate, num in rates]
    return [f"{row['accuracy']:.3f}", f"{low:.3f} - {high:.3f}", *shown, f"{row['steps']:.1f}"]


def tables(rows: list[dict[str, Any]]) -> dict[str, str]:
    """All that the page shows of them."""
    return {"limits": table(rows)}


def main() -> None:
    parser = parser_of(__doc__ or "", num=400, seeds=False)
    parser.add_argument("tasks", nargs="*", type=one_of(QUESTIONS), metavar="TASK")
    options = parser.parse_args()
    stored = json.loads(STORED.read_text()) if STORED.exists() else []
    now = {name: of_shipped(load(name)) for name in (*QUESTIONS, "all")}
    rows = [row for row in stored if now[row["model"]].items() <= row.items()]
    wanted = [(task, name) for task in options.tasks or QUESTIONS for name in (task, "all")]
    for task, name in wanted:
        own = [row for row in rows if (row["task"], row["model"]) == (task, name)]
        if options.tasks or not own or own[0]["num"] != options.num:
            rows = [row for row in rows if row not in own] + measured(task, name, options.num)
            rows.sort(key=lambda row: list(QUESTIONS).index(row["task"]))
            write_atomically(STORED, json.dumps(rows).encode() + b"\n")
    fill_page(HERE / "README.md", tables(rows))


if __name__ == "__main__":
    main()
