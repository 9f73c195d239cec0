"""What the HTML pages of this package have in common: `gbnf inspect` and the report of `gbnf bench`.

`rendering` has the templates, style sheets and the content policy; `run_files` reads recorded runs,
`run_view` is what is shown of one, as values; `timeline` makes HTML of it; `grammar_lines` stores grammars
that have most lines in common. Each page has templates and styles of its own beside these.
"""
