"""What the HTML pages of this package have in common: `gbnf inspect` and the report of `gbnf bench`.

`rendering` has the templates, style sheets and the content policy; `run_view` is what is shown of a recorded
run, as values; `timeline` makes HTML of it. Each page has templates and styles of its own beside these.
"""
