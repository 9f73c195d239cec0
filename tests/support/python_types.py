"""Python types of every kind that pydantic validates, by name."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import pathlib
import uuid
from collections import Counter, deque
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
from pydantic import BaseModel, Field


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


@dataclass
class Data:
    a: int
    b: Literal["x", "y"] = "x"


class Pair(NamedTuple):
    a: int
    b: str = "x"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: decimal.Decimal


class Dog(BaseModel):
    kind: Literal["dog"]
    barks: bool | None = None


class Aliased(BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    x: int = Field(alias="eks")


PETS = Annotated[Cat | Dog, Field(discriminator="kind")]
TYPES: dict[str, Any] = {
    "Decimal": decimal.Decimal,
    "a bounded Decimal": pydantic.condecimal(max_digits=5, decimal_places=2, gt=0),
    "date": dt.date,
    "datetime": dt.datetime,
    "naive datetime": pydantic.NaiveDatetime,
    "aware datetime": pydantic.AwareDatetime,
    "time": dt.time,
    "timedelta": dt.timedelta,
    "UUID": uuid.UUID,
    "UUID4": pydantic.UUID4,
    "IPv4Address": ipaddress.IPv4Address,
    "IPv6Address": ipaddress.IPv6Address,
    "IPv4Network": ipaddress.IPv4Network,
    "IPv6Network": ipaddress.IPv6Network,
    "IPv4Interface": ipaddress.IPv4Interface,
    "IPv6Interface": ipaddress.IPv6Interface,
    "any IP address": pydantic.IPvAnyAddress,
    "Path": pathlib.Path,
    "bytes": bytes,
    "base64": pydantic.Base64Bytes,
    "complex": complex,
    "Fraction": fractions.Fraction,
    "ByteSize": pydantic.ByteSize,
    "HttpUrl": pydantic.HttpUrl,
    "AnyHttpUrl": pydantic.AnyHttpUrl,
    "FileUrl": pydantic.FileUrl,
    "PostgresDsn": pydantic.PostgresDsn,
    "a set": set[int],
    "a tuple": tuple[int, str],
    "keys that are integers": dict[int, str],
    "keys that are dates": dict[dt.date, int],
    "keys that are literals": dict[Literal["a", "b"], int],
    "Counter": Counter[str],
    "deque": deque[int],
    "IntEnum": Number,
    "a dataclass": Data,
    "a named tuple": Pair,
    "a discriminated union": PETS,
    "a model": Cat,
    "an alias": Aliased,
    "an optional model": Cat | None,
    "a multiple": pydantic.conint(multiple_of=5),
    "a pattern": Annotated[str, pydantic.StringConstraints(pattern=r"^\d+$")],
}
