"""What a request says, by its words, in English and Italian: of tools, of values, of texts.

Modules, each importing only from those before it: `phrases` (words and paths in a text), `wording` (tables of
words), `values` (names, numbers and dates), `texts` (files and messages of a call), `spelling` (its texts as
the request has them), `ranking` (which tools fit), `parts` (what
can be carried out alone), `pool_filter` (which are offered), `coverage` (what calls
have of a request), `evidence` (what it says of the next call's arguments).
"""
