"""Realistic arguments for the bundled tools, keys in declared order.

The texts along which masks are timed.
"""

from __future__ import annotations

from typing import Any

CALLS: dict[str, dict[str, Any]] = {
    "compute": {"expression": "(1250 + 340) * 1.22 / 12"},
    "create_dirs": {"paths": ["trips/2026-lisbon", "trips/2026-lisbon/tickets"]},
    "create_events": {
        "title": "Dentist, dr. Bianchi",
        "starts": ["2026-03-05T09:30", "2026-03-12T16:00/2026-03-12T16:45"],
        "duration_minutes": 45,
        "location": "Via Roma 12, Torino",
    },
    "delete_files": {"paths": ["drafts/old-notes.md", "drafts/untitled.txt"]},
    "find_events_empty": {
        "start_date": "2026-11-23",
        "end_date": "2026-11-27",
        "part_of_day": "afternoon",
        "duration_minutes": 90,
        "limit": 3,
    },
    "find_files": {"base_path": "reports/2025", "patterns": ["**/*.csv", "summary-*.md"]},
    "find_files_google_workspace": {"query": "quarterly budget review", "limit": 25},
    "get_inputs": {
        "title": "Which ticket shall I book?",
        "dialog": [
            {
                "var": "train",
                "prompt": "Which train?",
                "schema": {"kind": "choice", "options": ["7:40", "9:15"]},
            },
            {"var": "seat", "prompt": "By the window?", "schema": {"kind": "yes_no"}},
        ],
    },
    "get_now": {"timezone": "Europe/Rome"},
    "read_files": {"paths": ["notes/meeting 2026-01-14.md", "città/però.txt"]},
    "request_location_from_user": {"reason": "to find a pharmacy that is open now"},
    "request_new_executor": {"need": "book a table at a restaurant for four people"},
    "send_messages": {
        "to": ["anna@example.org", "me"],
        "subject": "Minutes of Monday's meeting",
        "body": "Hi Anna,\n\nhere are the minutes: we start in May.\n\nBye",
    },
    "undo_last_turn": {},
    "write_files": {"files": [{"path": "todo.md", "content": '# To do\n\n- call the "bank"\n- buy milk\n'}]},
}
