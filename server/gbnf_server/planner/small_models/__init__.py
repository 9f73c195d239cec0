"""What leads small models through a run, by the words of a request: the rules that `guidance` switches.

Modules, each importing only from those before it: `preference` (which tools the model prefers),
`requested_arguments` and `requested_tools` (what the request says of them), `first_step` (what may be called
first), `progress` (what is left after calls), `call_corrections` (a call as the request has it).
"""
