"""Programs that train the models: the demonstration model, and an adapter (`lora`).

    python -m training.train --help
    python -m training.lora.train --help

They are part of a checkout, not of the wheel: run them from `server/`, or anywhere with an editable install.
They need the extra `train`.
"""
