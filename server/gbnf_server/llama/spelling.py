"""The fewest tokens that spell a text, which a tokenizer does not always choose."""

from __future__ import annotations

from collections.abc import Iterable


class Speller:
    """Spells bytes in the pieces of a vocabulary. `longest`: of a piece, in bytes."""

    def __init__(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        """`pieces`: tokens with their bytes; of several with the same bytes, the first is used."""
        self._tokens: dict[bytes, int] = {}
        for token, piece in pieces:
            if piece:
                self._tokens.setdefault(piece, token)
        self.longest = max(map(len, self._tokens), default=0)
        self.spells_every_byte = all(bytes([byte]) in self._tokens for byte in range(256))

    def spell(self, raw: bytes) -> list[int] | None:
        """Return the fewest tokens that spell these bytes, the longest first; None if none do."""
        size = len(raw)
        fewest: list[int | None] = [None] * size + [0]  # tokens from each offset on
        ends = [0] * size
        for start in range(size - 1, -1, -1):
            for end in range(min(start + self.longest, size), start, -1):
                rest = fewest[end]
                if rest is None or raw[start:end] not in self._tokens:
                    continue
                known = fewest[start]
                if known is None or rest + 1 < known:
                    fewest[start], ends[start] = rest + 1, end
        if fewest[0] is None:
            return None
        tokens: list[int] = []
        at = 0
        while at < size:
            tokens.append(self._tokens[raw[at : ends[at]]])
            at = ends[at]
        return tokens
