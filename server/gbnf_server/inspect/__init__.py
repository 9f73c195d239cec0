"""What a grammar does, as a page: the grammar beside its schema, a text against it, a pool for a request.

`grammar_view`, `text_view` and `pool_view` are what is shown, as values; `rendering` makes HTML of them, and
`app` serves it. A tab of the page is a view, a template and a renderer.
"""
