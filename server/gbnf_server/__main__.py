"""`python -m gbnf_server` is `gbnf`."""

from gbnf_server.cli import main

main()
