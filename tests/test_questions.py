"""Questions as users write them: what is accepted, and what is refused with which words."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepen.tasks import QuestionError, get_task

FACTS = ["Ann is the parent of Bo", "Bo is the child of Cy"]


@pytest.mark.parametrize(
    ("task", "question", "words"),
    [
        ("graph", "a->b", "a graph question is a mapping"),
        ("graph", {"edges": [["a", "b"]], "source": "a"}, "no 'target'"),
        ("graph", {"edges": [["a", "b"]], "source": "a", "target": "b", "goal": 1}, "unknown key 'goal'"),
        ("graph", {"edges": [], "source": "a", "target": "b"}, "the graph is empty"),
        (
            "graph",
            {"edges": [["a", "b"]], "source": "a", "target": "x"},
            "target: node 'x' is not in",
        ),
        (
            "graph",
            {"edges": [["a", "b"]], "source": "x", "target": "b"},
            "source: node 'x' is not in",
        ),
        ("graph", {"edges": [["a", "b"]], "source": "a", "target": "a"}, "ask about two nodes"),
        ("graph", {"edges": [["a", "b", "c"]], "source": "a", "target": "b"}, r"edges\[0\]: expected a pair"),
        ("graph", {"edges": "ab", "source": "a", "target": "b"}, "'edges' must be a list"),
        ("graph", {"edges": [["a", 1.5]], "source": "a", "target": "b"}, r"edges\[0\]: a node name is"),
        ("graph", {"edges": [["a", True]], "source": "a", "target": "b"}, r"edges\[0\]: a node name is"),
        ("graph", {"edges": [["a", []]], "source": "a", "target": "b"}, r"edges\[0\]: a node name is"),
        ("graph", {"edges": [["a", "b"]], "source": ["a"], "target": "b"}, "source: a node name is"),
        (
            "graph",
            {"nodes": ["a"], "edges": [["a", "b"]], "source": "a", "target": "b"},
            "not listed",
        ),
        ("graph", {"nodes": ["a", "a"], "edges": [], "source": "a", "target": "b"}, "listed twice"),
        ("logic", 5, "a logic question is a string"),
        ("logic", "", "is empty"),
        ("logic", "  ", "is empty"),
        ("logic", "(T&F", "'\\(' at character 1 is never closed"),
        ("logic", "T&F)", "character 4 .*: unbalanced parentheses, nothing is open"),
        ("logic", "T&", "ends where"),
        ("logic", "T F", "character 3 .*: 'F' where &, | or \\) was expected"),
        ("logic", "T&|F", "character 3 .*: '|' where T"),
        ("logic", "()", "character 2"),
        ("logic", "T&X", "unknown symbol 'X'"),
        ("logic", "T and F", "unknown symbol 'a'"),
        ("family", "Ann is the parent of Bo", "a mapping with 'facts' and 'query'"),
        ("family", {"facts": FACTS}, "a mapping with 'facts' and 'query'"),
        ("family", {"facts": [], "query": FACTS[0]}, "at least one sentence"),
        ("family", {"facts": ["Ann likes Bo"], "query": FACTS[0]}, r"facts\[0\]: expected 'NAME is the"),
        ("family", {"facts": ["Ann is the boss of Bo"], "query": FACTS[0]}, "unknown relation 'boss'"),
        (
            "family",
            {"facts": FACTS, "query": "Ann is the parent of Dora"},
            "query: 'Dora' is in none",
        ),
        ("family", {"facts": FACTS, "query": "Ann is the parent of Ann"}, "ask about two people"),
        (
            "family",
            {"facts": ["Bo is the child of Bo"], "query": FACTS[0]},
            r"facts\[0\]: both people",
        ),
        ("family", {"facts": FACTS, "query": None}, "query: expected 'NAME is the"),
    ],
)
def test_bad_questions_say_what_is_wrong(task, question, words):
    with pytest.raises(QuestionError, match=words):
        get_task(task).encode(question)


def test_any_names_and_any_size():
    chain = [[f"node {i}", f"node {i + 1}"] for i in range(500)]
    encoded = get_task("graph").encode({"edges": chain, "source": "node 0", "target": "node 500"})
    assert len(encoded.tokens) == 501
    mixed = {"edges": [[1, "1"], ["1", 2]], "source": 1, "target": 2}
    assert len(get_task("graph").encode(mixed).tokens) == 3  # the integer 1 and the string "1" are two nodes


def test_spaces_and_full_stops_do_not_matter():
    logic, family = get_task("logic"), get_task("family")
    assert (logic.encode(" !( T & F ) ").tokens == logic.encode("!(T&F)").tokens).all()
    plain = {"facts": FACTS, "query": "Ann is the sibling of Cy"}
    dotted = {"facts": [f"{fact}." for fact in FACTS], "query": "Ann is the sibling of Cy?"}
    assert (family.encode(plain).tokens == family.encode(dotted).tokens).all()
    typed = family.parse("Ann is the parent of Bo. Bo is the child of Cy. Ann is the sibling of Cy?")
    assert typed == plain == family.parse(json.dumps(plain))


@pytest.mark.parametrize(
    "text",
    ["", "Ann is the parent of Bo?", "Ann is the parent of Bo. Bo is the child of Ann.", "A is. B is? C is?"],
)
def test_a_family_is_typed_as_facts_and_last_a_question(text):
    with pytest.raises(QuestionError, match="expected facts and, last, a question: 'Ann is the"):
        get_task("family").parse(text)


def test_names_are_exchangeable():
    family = get_task("family")
    one = {"facts": FACTS, "query": "Ann is the sibling of Cy"}
    other = {
        "facts": ["Mary Ann is the parent of Zoë", "Zoë is the child of Al"],
        "query": "Mary Ann is the sibling of Al",
    }
    assert (family.encode(one).tokens == family.encode(other).tokens).all()


def test_deep_nesting_is_not_limited_by_the_interpreter():
    deep = "(" * 20_000 + "T" + ")" * 20_000
    assert get_task("logic").verify(deep) is True
    assert len(get_task("logic").encode(deep).tokens) == 40_002


words = st.text(max_size=30) | st.text(alphabet="TF!&|() ", max_size=30)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
graphs = st.fixed_dictionaries(
    {"edges": st.lists(st.lists(plain, max_size=3), max_size=4) | plain, "source": plain, "target": plain}
)
families = st.fixed_dictionaries(
    {"facts": st.lists(words | st.sampled_from(FACTS), max_size=4) | plain, "query": words | plain}
)


@settings(max_examples=150, deadline=None)
@given(question=plain | graphs | families, task=st.sampled_from(["graph", "logic", "family"]))
def test_anything_else_is_a_question_error_too(question, task):
    """Whatever comes in, it is encoded or refused as a question: nothing else is ever raised."""
    try:
        encoded = get_task(task).encode(question)
    except QuestionError:
        return
    assert len(encoded.tokens) >= 2


def test_a_malformed_fact_takes_no_time():
    """Once a regular expression took cubic time, seven seconds for this one."""
    fact = "a is the child of b" + " " * 20_000 + "x\ny"
    with pytest.raises(QuestionError, match="expected 'NAME is the RELATION of NAME'"):
        get_task("family").encode({"facts": [fact], "query": "a is the child of b"})


def test_names_with_of_in_them():
    question = {
        "facts": ["Ann is the parent of Duke of York."],
        "query": "Ann is the parent of Duke of York?",
    }
    assert get_task("family").verify(question) is True
    assert len(get_task("family").encode(question).tokens) == 17
