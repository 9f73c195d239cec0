"""Analyses of rules agree with their plain definitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gbnf.grammar.analysis import in_cycles, strong_components

NAMES = st.sampled_from("abcdefg")
GRAPHS = st.dictionaries(NAMES, st.lists(NAMES, max_size=3))


def _reached(graph: dict[str, list[str]], start: str) -> set[str]:
    """Return the rules of the graph that one or more references lead to."""
    reached: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name in graph and name not in reached:
            reached.add(name)
            waiting += graph[name]
    return reached


@given(graph=GRAPHS)
def test_a_component_holds_the_rules_that_reach_each_other(graph: dict[str, list[str]]) -> None:
    components = list(strong_components(graph))
    reached = {name: _reached(graph, name) for name in graph}
    assert sorted(name for component in components for name in component) == sorted(graph)
    for number, component in enumerate(components):
        for name in graph:
            mutual = name == component[0] or (name in reached[component[0]] and component[0] in reached[name])
            assert (name in component) == mutual
        before = {name for earlier in components[: number + 1] for name in earlier}
        assert reached[component[0]] <= before


@given(graph=GRAPHS)
def test_rules_in_cycles_reach_themselves(graph: dict[str, list[str]]) -> None:
    assert sorted(in_cycles(graph)) == sorted(name for name in graph if name in _reached(graph, name))
