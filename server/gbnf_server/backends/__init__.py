"""Language models behind one seam: in this process, or in a llama-server."""
