"""What the core's values are made of."""

from __future__ import annotations

from typing import dataclass_transform

from msgspec import Struct, field


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Value(Struct, frozen=True, omit_defaults=True, gc=False):
    """A frozen value, made, copied (``msgspec.structs.replace``) and compared in C; as JSON without its defaults.

    A message passes some sixty of them, so they are not the garbage collector's business: what is frozen and made of
    texts, numbers and other values is in no cycle.
    """
