"""Bodies of requests: read up to a limit, and unpacked up to a limit."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator

from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from rcil_serve.http.protocol.refusal import RefusalError

Body = bytes | bytearray
PACKED = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""Window bits of zlib by `Content-Encoding`."""
MOST_DIGITS = 18
"""Of a length that is read as a number; Python refuses very long ones with an error."""


async def read_body(request: Request, limit: int, seconds: float) -> Body:
    """The whole body as it was sent, or the uploaded file of a form; 413 above `limit` bytes, 408 after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            if request.headers.get("content-type", "").startswith("multipart/form-data"):
                return await _uploaded(request, limit)
            body = bytearray()
            async for chunk in _limited(request, limit):
                body += chunk
            return body
    except TimeoutError as error:
        raise RefusalError(408, f"the request did not arrive within {seconds:g} s") from error


async def _limited(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and (len(stated) > MOST_DIGITS or int(stated) > limit):
        raise _too_large(limit)
    read = 0
    async for chunk in request.stream():
        read += len(chunk)
        if read > limit:
            raise _too_large(limit)
        yield chunk


async def _uploaded(request: Request, limit: int) -> bytes:
    """The first file of a form, whatever its field is called."""
    parser = MultiPartParser(request.headers, _limited(request, limit), max_files=4, max_fields=16)
    parser.spool_max_size = limit + 1  # stays in memory
    try:
        form = await parser.parse()
        for value in form.values():
            if not isinstance(value, str):
                return await value.read()
    except (MultiPartException, KeyError) as error:
        raise RefusalError(400, f"the form cannot be read: {error}", "Send multipart/form-data.") from error
    finally:
        for file in parser._files_to_close_on_error:  # all of them: a form lacks those whose part never ended
            file.close()
    raise RefusalError(400, "the form holds no file", "Upload with `curl -F image=@street.jpg`.")


def unpacked(body: Body, encoding: str, limit: int) -> Body:
    """The body without its `Content-Encoding`; 413 above `limit` bytes, so that a small bomb stays small."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in PACKED:
        raise RefusalError(415, f"bodies in '{encoding}' are not taken", f"Use {' or '.join(PACKED)}, or none.")
    unpacker = zlib.decompressobj(PACKED[encoding])
    try:
        data = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise RefusalError(400, f"the body is not {encoding}: {error}") from error
    if len(data) > limit:
        raise _too_large(limit)
    if not unpacker.eof or unpacker.unused_data:
        raise RefusalError(400, f"the {encoding} body is cut off, or something follows it")
    return data


def _too_large(limit: int) -> RefusalError:
    return RefusalError(413, f"the body has more than {limit} bytes", "Send a smaller image, or raise --max-bytes.")
