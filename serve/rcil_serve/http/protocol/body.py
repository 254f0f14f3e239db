"""Request bodies: read, decompressed and decoded, each within a limit."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator

from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from rcil.core.images import JPEG, MAX_SCANS, Image, decoded, has_too_many_scans, stated_size
from rcil_serve.http.protocol.answers import RefusalError

Body = bytes | bytearray
PACKED = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""zlib window bits by `Content-Encoding`."""
MAX_DIGITS = 18
"""Maximum number of digits of a length; Python refuses to parse very long numbers."""


async def read_body(request: Request, limit: int, seconds: float) -> Body:
    """Read the whole body, or the uploaded file of a form; 413 above `limit` bytes, 408 after `seconds`."""
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
    if stated.isdecimal() and (len(stated) > MAX_DIGITS or int(stated) > limit):
        raise _too_large(limit)
    read = 0
    async for chunk in request.stream():
        read += len(chunk)
        if read > limit:
            raise _too_large(limit)
        yield chunk


async def _uploaded(request: Request, limit: int) -> bytes:
    """Read the first file of a form, whatever its field is called."""
    parser = MultiPartParser(request.headers, _limited(request, limit), max_files=4, max_fields=16)
    parser.spool_max_size = limit + 1  # keep it in memory
    try:
        form = await parser.parse()
        for value in form.values():
            if not isinstance(value, str):
                return await value.read()
    except (MultiPartException, KeyError) as error:
        raise RefusalError(400, f"the form cannot be parsed: {error}", "Send multipart/form-data.") from error
    finally:
        for file in parser._files_to_close_on_error:  # all files: a form lacks those with an incomplete part
            file.close()
    raise RefusalError(400, "the form contains no file", "Upload with `curl -F image=@street.jpg`.")


def decompressed(body: Body, encoding: str, limit: int) -> Body:
    """Undo the `Content-Encoding` of a body; 413 above `limit` bytes, which stops decompression bombs."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in PACKED:
        raise RefusalError(415, f"unsupported content encoding '{encoding}'", f"Use {' or '.join(PACKED)}, or none.")
    unpacker = zlib.decompressobj(PACKED[encoding])
    try:
        data = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise RefusalError(400, f"the body is not {encoding}: {error}") from error
    if len(data) > limit:
        raise _too_large(limit)
    if not unpacker.eof or unpacker.unused_data:
        raise RefusalError(400, f"the {encoding} body is truncated or followed by other data")
    return data


def _too_large(limit: int) -> RefusalError:
    return RefusalError(413, f"the body has more than {limit} bytes", "Send a smaller image, or raise --max-bytes.")


def decode_image(body: Body, max_pixels: int) -> Image:
    """Decode a PNG or JPEG to upright RGB [H, W, 3]; 413 above `max_pixels`, 400 if it is not an image."""
    size = stated_size(body)
    if size is None:
        raise RefusalError(400, "the body is neither PNG nor JPEG", "Send the bytes of an image file.")
    height, width = size
    if height * width > max_pixels:
        raise RefusalError(
            413,
            f"the image has {width}x{height} pixels, more than {max_pixels}",
            "Send a smaller one, or raise --max-pixels.",
        )
    if body.startswith(JPEG) and b"\xff\xd9" not in body[-1024:]:
        raise RefusalError(400, "the JPEG is truncated", "Send it again.")
    if has_too_many_scans(body):
        raise RefusalError(413, f"the JPEG has more than {MAX_SCANS} scans", "Save it again with another program.")
    pixels = decoded(body)
    if pixels is None or pixels.size != height * width * 3:
        raise RefusalError(400, "the image cannot be decoded", "It may be damaged; send it again.")
    return pixels
