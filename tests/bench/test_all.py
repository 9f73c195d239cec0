from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from all import commands, documents, with_table
from checkout import ROOT
from tables import new_table, show

NAMES = st.sampled_from(["bench/a.py", "bench/a.py --every 2", "bench/b.py"])
BODIES = st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"])).filter(
    lambda text: "<!--" not in text
)
DOCUMENTS = st.lists(st.tuples(NAMES, BODIES, BODIES))


def document(parts: list[tuple[str, str, str]]) -> str:
    return "".join(
        f"{before}\n<!-- printed by: python {name} -->\n{table.strip()}\n<!-- end -->\n"
        for name, before, table in parts
    )


@given(parts=DOCUMENTS, name=NAMES, printed=BODIES)
def test_a_table_is_replaced_wherever_its_command_is_named_and_nowhere_else(
    parts: list[tuple[str, str, str]], name: str, printed: str
) -> None:
    wanted = [(one, before, printed if one == name else table) for one, before, table in parts]
    assert with_table(document(parts), name, printed) == document(wanted)
    assert commands(document(parts)) == list(dict.fromkeys(one for one, _, _ in parts))


def test_the_documents_name_programs_that_exist() -> None:
    named = [command for path in documents() for command in commands(path.read_text("utf-8"))]
    assert named
    assert [command for command in named if not Path(ROOT, command.split()[0]).is_file()] == []


def test_tables_are_markdown_where_the_output_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    table = new_table(" | ms", "Times")
    table.add_row("ours", "1.0")
    show(table)
    assert capsys.readouterr().out == "Times:\n\n|  | ms |\n|---|---|\n| ours | 1.0 |\n\n"
