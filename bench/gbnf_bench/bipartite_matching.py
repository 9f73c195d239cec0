"""Maximum bipartite matchings of seekers and offers."""

from __future__ import annotations

from collections.abc import Callable


def maximum_matching(seekers: int, offers: int, fits: Callable[[int, int], bool]) -> dict[int, int]:
    """Return seeker -> offer, for as many seekers as possible, in the order of the offers.

    Both are counted from 0; `fits(seeker, offer)`. Among equal matchings, the first seekers and offers are
    preferred.
    """
    owner: dict[int, int] = {}

    def assign(seeker: int, tried: set[int]) -> bool:
        for offer in range(offers):
            if offer not in tried and fits(seeker, offer):
                tried.add(offer)
                if offer not in owner or assign(owner[offer], tried):
                    owner[offer] = seeker
                    return True
        return False

    for seeker in range(seekers):
        assign(seeker, set())
    return {seeker: offer for offer, seeker in sorted(owner.items(), key=lambda pair: pair[1])}
