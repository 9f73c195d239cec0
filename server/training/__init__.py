"""Programs that train, export and evaluate the models: the demonstration model, and an adapter (`lora`).

    python -m training.train --help
    python -m training.export --help
    python -m training.evaluate --help
    python -m training.lora.train --help
    python -m training.lora.compare --help

They are part of a checkout, not of the wheel: run them from `server/`, or anywhere with an editable install.
Training and export need the extra `train`.
"""
