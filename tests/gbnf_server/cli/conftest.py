"""The command line, for every test of it."""

from support.command_line import gbnf

__all__ = ["gbnf"]
