"""Language models behind one interface: in this process, or in a server."""
