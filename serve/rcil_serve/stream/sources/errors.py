"""Errors of FFmpeg in the words of the user, with a remedy that fits."""

from __future__ import annotations

from typing import Any

import av.error

from rcil_serve.stream.frames import SourceError

HINT = "Check the file with another player, or convert it to MP4 with H.264."
DOWNLOAD = "Download the file and use the copy: it may be damaged, or its server may send files only from their start."
_LOGIN = (
    "Put user name and password into the address, as in {scheme}://user:password@host/path, "
    "and write @ : / in them as %40 %3A %2F."
)
_REMEDIES: tuple[tuple[tuple[type[BaseException], ...], str, str], ...] = (
    ((av.error.HTTPUnauthorizedError,), "the server asks for a user name and a password, or refuses them", _LOGIN),
    ((av.error.HTTPForbiddenError,), "the server refuses access", _LOGIN),
    ((av.error.HTTPNotFoundError,), "the server does not know this path", "Check the path of the address."),
    ((av.error.HTTPTooManyRequestsError,), "the server has too many requests to answer", "Try again later."),
    (
        (av.error.HTTPBadRequestError, av.error.HTTPOtherClientError),
        "the server refuses the request",
        "Check the address.",
    ),
    ((av.error.HTTPServerError,), "the server reports an error of its own", "Try again later, or look at its log."),
    (
        (av.error.ConnectionRefusedError,),
        "nothing listens at this address",
        "Check the host and the port, and whether the camera or the server is running.",
    ),
    (
        (av.error.TimeoutError, av.error.ExitError, av.error.ConnectionResetError),
        "there was no answer in time",
        "Check the network and whether the camera is on; --timeout allows it more seconds.",
    ),
    ((av.error.ProtocolNotFoundError,), "FFmpeg does not know this kind of address", "Check the start of the address."),
)


def open_error(path: str, name: str, error: Any) -> SourceError:
    """The error for a file or an address that cannot be opened.

    FFmpeg's own error contains the address, which may hold a password, so it must not be chained.
    """
    scheme = path.partition("://")[0] if "://" in path else ""
    for kinds, why, hint in _REMEDIES:
        if scheme and isinstance(error, kinds):
            return SourceError(f"{name} cannot be opened: {why}", hint.format(scheme=scheme))
    hint = "Check the address, the network, and whether it is a video." if scheme else HINT
    return SourceError(f"{name} cannot be opened as a video: {reason(error)}", hint)


def reason(error: Any) -> str:
    """FFmpeg's message without the error code and the file name."""
    return str(error.strerror or error)
