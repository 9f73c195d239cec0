"""The Berkeley Function-Calling Leaderboard (v4), read from the user's files; none are bundled.

files           its JSON lines: questions, functions, possible answers
functions       its functions as tools: type names to JSON Schema
ast_checker     whether calls are correct, by the leaderboard's AST rules
grammar_checks  without a model: check grammars with the possible answers
runner          with a model: questions to calls

Format and rules: the README and the published rules of https://github.com/ShishirPatil/gorilla, folder
berkeley-function-call-leaderboard, of which nothing is copied. Not supported, and reported: Java and
JavaScript, whose answers are literals of that language, multi-turn conversations and the agentic categories.
"""
