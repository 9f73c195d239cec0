"""The planner bench: the same requests under one configuration after another, and a table of what came of it.

patterns, cases        what a case expects, as values
suite_files, dsl       cases from TOML, and from Python
configurations         what is compared: one line each
worlds, person         where a case takes place, and what the world looks like afterwards
running, records       cases to event streams, kept in a file, never run twice
scoring, statistics    event streams to numbers with intervals: pure, so that stored runs can be scored again
report, plots          numbers to a page
bfcl                   the Berkeley Function-Calling Leaderboard's files
"""
