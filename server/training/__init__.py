"""Programs that train, export and evaluate the demonstration model, and generate its held-out suite.

    python -m training.train --help
    python -m training.export --help
    python -m training.evaluate --help
    python -m training.held_out > bench/suites/held-out.toml

They are part of a checkout, not of the wheel: run them from `server/`, or anywhere with an editable install.
Training and export need the extra `train`.
"""
