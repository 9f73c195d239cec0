"""From sets of JSON values to grammars: lowering, and the linking of pools from compiled parts."""
