"""Batches: many requests, several at a time, with resumable runs and one result file."""

from gbnf_server.planner.batch.requests import BatchFileError, BatchRequest, parse_requests, read_requests
from gbnf_server.planner.batch.runner import Batch, BatchResult, write_result
from gbnf_server.planner.runs.run_log import RunLogError

__all__ = [
    "Batch",
    "BatchFileError",
    "BatchRequest",
    "BatchResult",
    "RunLogError",
    "parse_requests",
    "read_requests",
    "write_result",
]
