"""How do I let a model write in a form of my own, that is not JSON?

pip install 'gbnf-toolkit[run]' && python examples/own_grammar.py
"""

from gbnf import Grammar
from gbnf_server import InProcess, Request
from gbnf_server.system.model_files import smollm2_path

GRAMMAR = Grammar.parse(r"""
root ::= move " " move " " move
move ::= [a-h] [1-8] "-" [a-h] [1-8]
""")

print(GRAMMAR.match("e2-e9").expected)  # what the grammar allows instead of the 9
messages = [{"role": "user", "content": "Write the first three moves of a game of chess."}]
with InProcess(smollm2_path(), threads=1) as model:
    print(model.complete(Request(messages, GRAMMAR)).text)
