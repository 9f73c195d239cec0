"""The Berkeley Function-Calling Leaderboard (v4), from files that the user has; none come along.

files       its JSON lines: questions, functions, possible answers
functions   its functions as executors: its own type names to JSON Schema
rules       whether calls are right, by the leaderboard's AST rules
compiling   without a model: grammars against the possible answers
calling     with one: each question to calls

Format and rules: the README and the published rules of https://github.com/ShishirPatil/gorilla, folder
berkeley-function-call-leaderboard, of which nothing is copied. Java and JavaScript, whose answers are that
language's literals, conversations of several turns and the agentic parts are left out, and said so.
"""
