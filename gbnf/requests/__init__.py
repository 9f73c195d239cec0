"""What a request says, by its words, in English and Italian: of tools, of values, of texts.

Modules, each importing only from those before it: `phrases` (words as patterns), `values` (names, numbers and
dates), `texts` (what is dictated, read or copied), `ranking` (which tools fit), `pool_filter` (which are
offered), `coverage` (what calls have of a request), `evidence` (what it says of the next call's arguments).
"""
