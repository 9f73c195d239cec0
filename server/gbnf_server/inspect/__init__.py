"""What a grammar does, as a page: the grammar beside its schema, a text against it, a pool for a request.

Public modules: `inspection` (what a page is about, and its HTML), `grammar_choice` (which grammar it
shows), `live_decoding`, `app` (serves the page), and those of `pages`. The other modules are views, as
values, and their HTML: a tab of the page is a view, a template and a renderer.
"""
