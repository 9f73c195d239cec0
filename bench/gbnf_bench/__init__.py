"""The planner bench: run the same requests under several configurations, and tabulate the results.

expectations, cases            cases and their expectations, as values
suite_files, dsl               cases from TOML and from Python, checked: also whether a case can pass
configurations                 what is compared: an entry for each
snapshots                      the state before a run, the person, and the state after it
runner, run_log                cases to event streams, logged, so that no run is repeated
call_matching, state_checks    compare event streams and states with expectations
scoring, statistics            event streams to metrics with intervals; pure
results                        stored results
report, tables                 the report
bfcl                           the Berkeley Function-Calling Leaderboard's files
"""
