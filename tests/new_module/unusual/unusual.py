"""Types that an author would write, beyond the template's."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Literal, NewType, Optional

from toolhold import Annotated, Field, Tools, tool

type Names = list[str]
Euros = NewType("Euros", float)


class Color(Enum):
    RED = "red"
    GREEN = "green"


class Rank(IntEnum):
    FIRST = 1
    SECOND = 2


@dataclass
class Base:
    id: int
    note: Optional[str] = None


@dataclass(kw_only=True)
class Item(Base):
    color: Color = Color.RED
    tags: Names = field(default_factory=list)
    price: Annotated[Euros, Field("In euros.", minimum=0)] | None = None


@dataclass
class Basket:
    items: list[Item]
    by_rank: dict[str, list[Item]] = field(default_factory=dict)


@dataclass
class Total:
    count: int
    first: Item | None
    label: str = field(init=False)

    def __post_init__(self):
        self.label = f"{self.count} items"


@tool()
def add(
    basket: Annotated[Basket, "What is in it."],
    mode: Literal["sum", "list", 3] = "sum",
    best: Literal[Rank.FIRST, Rank.SECOND] = Rank.FIRST,
    key: int | str | None = None,
    *,
    color: Color = Color.GREEN,
) -> Total:
    """Adds up a basket."""
    assert isinstance(color, Color) and best in (Rank.FIRST, Rank.SECOND) and isinstance(best, Rank)
    assert all(isinstance(item.color, Color) for item in basket.items)
    ranked = [item for items in basket.by_rank.values() for item in items]
    return Total(len(basket.items) + len(ranked), basket.items[0] if basket.items else None)
