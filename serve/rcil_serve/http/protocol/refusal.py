"""Requests that are not answered as asked."""

from __future__ import annotations

from rcil.core.errors import RcilError


class RefusalError(RcilError):
    """Becomes an answer with `status` and the words as JSON.

    Args:
        status: Of HTTP; from 500 on it is the server's fault.
        message: What is wrong, with the offending value.
        hint: What to do about it.
    """

    def __init__(self, status: int, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.status = status

    @property
    def headers(self) -> dict[str, str]:
        """Beside the words: when to come again, or what to bring."""
        if self.status in (409, 429, 503):
            return {"Retry-After": "1"}
        return {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}


def in_words(error: RcilError) -> str:
    """Message and remedy in one line."""
    return f"{error.message}. {error.hint}" if error.hint else error.message
