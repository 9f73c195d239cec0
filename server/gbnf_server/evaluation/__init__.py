"""The planner bench: the same requests under one configuration after another, and a table of the results.

expectations, cases            what a case expects, as values
suite_files, dsl               cases from TOML, and from Python; satisfiability: whether they can pass
configurations                 what is compared: one line each
snapshots, case_person         the state in which a case runs, and what it is afterwards
runner, run_log                cases to event streams, kept in a file, never run twice
call_matching, state_checks    event streams and states against expectations
scoring, statistics            event streams to numbers with intervals: pure, so that stored runs score too
results                        stored results
report, tables, plot_axis      numbers to a page
bfcl                           the Berkeley Function-Calling Leaderboard's files
"""
