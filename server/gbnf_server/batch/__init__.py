"""Many requests, several at a time; what came of each stands in a file, and nothing is executed twice."""

from gbnf_server.batch.requests import Request, RequestError, read_requests
from gbnf_server.batch.running import Batch, BatchError, Result, write_line

__all__ = ["Batch", "BatchError", "Request", "RequestError", "Result", "read_requests", "write_line"]
