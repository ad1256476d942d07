"""aiohttp's reader of answers, for servers whose framing costs nothing to send and much to read.

Bounds of bytes do not bound the time that these bytes take: a megabyte that comes in chunks of one byte keeps the loop
two seconds, and each `100 Continue` is an answer of its own. So both are counted, and the connection is cut.
"""

from __future__ import annotations

from typing import Any

from aiohttp.client_proto import ResponseHandler

LINES = 1024
BYTES_PER_LINE = 64
"""An answer may have so many lines (of headers, and of chunks, which have two each), and one more for so many bytes.

An API server's chunks have kilobytes, the events of its watches hundreds of bytes.
"""
FRAMING_BYTES = 128 * 1024
"""An answer may have so many bytes of headers and framing, and one more for each byte of its body."""

_PIECE_BYTES = 8 * 1024
_WAITING_ANSWERS = 16


class FramingGuard(ResponseHandler):
    """Cuts the connection to a server that sends answers nobody asked for, or lines without end.

    All that comes in one read would be parsed at once, so a read is parsed piece by piece. Who asked hears that the
    server disconnected.
    """

    _bytes = 0
    _lines = 0
    _is_after_return = False

    def set_response_params(self, **options: Any) -> None:
        """Get ready for the next answer of the connection."""
        self._bytes = self._lines = 0
        super().set_response_params(**options)

    def data_received(self, data: bytes) -> None:
        """Take in what came."""
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            self._count(piece)
            super().data_received(piece)
            has_too_many_lines = self._lines > LINES + self._bytes // BYTES_PER_LINE
            if len(self._buffer) > _WAITING_ANSWERS or has_too_many_lines or self._has_no_body():
                if self.transport is not None:
                    self.transport.abort()
                return

    def _has_no_body(self) -> bool:
        """Whether what came is all framing: a line that never ends, as of a chunk's extension."""
        body = self._payload.total_bytes if self._payload is not None else 0
        return self._bytes > FRAMING_BYTES + 2 * body

    def _count(self, piece: bytes) -> None:
        # Each line that frames something ends so; what is between may end its lines as it likes.
        self._lines += piece.count(b"\r\n") + (self._is_after_return and piece.startswith(b"\n"))
        self._bytes += len(piece)
        self._is_after_return = piece.endswith(b"\r")
