"""Addresses of hosts."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a server on `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_unspecified(host: str) -> bool:
    """Return whether a host stands for every interface: 0.0.0.0 or [::]."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
