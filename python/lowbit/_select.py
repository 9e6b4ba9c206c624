"""The include and exclude of quantize_ and merge_."""

from __future__ import annotations

import re
from collections.abc import Iterable


class Selection:
    """Regular expressions, of which one must be found in a name, or none; exclude wins."""

    def __init__(self, verb: str, include: str | Iterable[str] | None, exclude: str | Iterable[str] | None):
        self._wanted, self._unwanted = _patterns(verb, "include", include), _patterns(verb, "exclude", exclude)

    def reason(self, *names: str) -> str | None:
        """Why what has these names is not selected."""
        if _found(self._unwanted, names):
            return "excluded"
        return "not included" if self._wanted and not _found(self._wanted, names) else None


def _patterns(verb: str, option: str, given: str | Iterable[str] | None) -> list[re.Pattern[str]]:
    texts = [given] if isinstance(given, str) else list(given or [])
    try:
        return [re.compile(text) for text in texts]
    except re.error as error:
        raise ValueError(f"{verb}: {option} = {texts} is no regular expression: {error}") from None


def _found(patterns: list[re.Pattern[str]], names: Iterable[str]) -> bool:
    return any(pattern.search(name) for name in names for pattern in patterns)
