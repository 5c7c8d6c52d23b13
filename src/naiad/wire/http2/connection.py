"""The server's side of one HTTP/2 connection, without a socket: received bytes become streams and their data.

A small request passes ``received`` -> ``_parse`` -> ``Stream.data``: two frames, one look-up of the header block.
Everything unusual takes the slower methods below. Source: RFC 9113; section numbers stand beside the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from naiad.wire.http2.frames import (
    CONTINUATION,
    DATA,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HAS_PRIORITY,
    HEADERS,
    MAX_STREAM_ID,
    PADDED,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    Http2ConnectionError,
    Http2ErrorCode,
    Http2StreamError,
    Setting,
    encode_settings,
    encode_window_update,
    frame_head,
    frame_too_long,
    too_much_padding,
)
from naiad.wire.http2.headers import MAX_BLOCK_BYTES, MAX_HEADER_LIST_BYTES, HeaderReader, Http2RequestHead
from naiad.wire.http2.incoming_limits import CONNECTION_WINDOW, STREAM_WINDOW, IncomingLimits
from naiad.wire.http2.incomplete import IncompleteBlock, IncompleteFrame
from naiad.wire.http2.receive_buffer import ReceiveBuffer
from naiad.wire.http2.scattered_read import Scattered, ScatteredRead
from naiad.wire.http2.stream import LOCAL_CLOSED, REMOTE_CLOSED, Stream

MAX_FRAME_BYTES: Final = 1 << 22
# Empty CONTINUATION frames would never exceed the bytes that a block may have.
MAX_CONTINUATIONS: Final = 32
_IN_PLACE_BYTES: Final = 1 << 15
_RUN_BYTES: Final = 1 << 12
"""The least data of a frame behind which further ones with the same head are looked for."""
_HTTP1_REQUEST = re.compile(rb"[A-Z]{3,16} [/*h]")

_LARGE_READS: Final = 2
"""After part of a large message this many reads expect another one. One of them most likely finds nothing."""
_UNUSED_CHANCES: Final = 64
"""After frames that were not as expected, as of calls side by side, this many chances to expect some go unused."""
ReadInto = Callable[[Sequence[memoryview], int], int]
OpenStream = Callable[["Http2Connection", int, Http2RequestHead], Stream]


class Http2Connection(IncomingLimits):
    """Pass bytes in by ``target`` and ``received``; write ``out`` to the socket.

    Attributes:
        unread: received bytes that are not processed yet.
        read_into: reads what waits in the socket into parts of memory of that many bytes together, and returns the
            number of bytes, 0 if there are none; None where only the transport reads.
        refused: the peer spoke HTTP/1 and got ``http1_response``.
    """

    __slots__ = (
        "_block",
        "_buffer",
        "_greeted",
        "_http1_response",
        "_in_place",
        "_large_reads",
        "_open",
        "_partial",
        "_reader",
        "_receive_buffer",
        "_started",
        "_unused_chances",
        "_view",
        "read_into",
        "refused",
        "unread",
    )

    def __init__(
        self,
        buffer: ReceiveBuffer,
        open_stream: OpenStream,
        find_route: Callable[[Http2RequestHead], Any],
        wake: Callable[[], None],
        max_streams: int,
        http1_response: bytes = b"",
    ) -> None:
        super().__init__(wake, max_streams)
        self._receive_buffer = buffer
        # Bound once for all reads.
        self._buffer = buffer.bytes
        self._view = buffer.view
        self._open = open_stream
        self._reader = HeaderReader(find_route)
        self._started = self._greeted = False
        self._block: IncompleteBlock | None = None
        self._partial: IncompleteFrame | None = None
        self._in_place = False
        # Reads that still expect a large message, and chances to read frames of one length that still go unused.
        self._large_reads = self._unused_chances = 0
        self.unread = bytearray()
        self.read_into: ReadInto | None = None
        self.refused = False
        self._http1_response = http1_response

    def forget_heads(self) -> None:
        """Look up the route of each further request again."""
        self._reader.known.clear()

    @property
    def is_within_frame(self) -> bool:
        """The peer has begun something that it has not finished: a frame, a header block, its preface."""
        return bool(self.unread) or self._partial is not None or self._block is not None or not self.settled

    @property
    def is_within_large_frame(self) -> bool:
        """Whether the next bytes are data that may be received straight into a message."""
        partial = self._partial
        return partial is not None and partial.left >= _IN_PLACE_BYTES

    # Receiving

    def target(self, sizehint: int = -1) -> memoryview:
        """Where the next bytes are to go: the shared buffer, or straight into a message."""
        partial = self._partial
        self._in_place = False
        if partial is not None and partial.left >= _IN_PLACE_BYTES and partial.stream is not None:
            memory = partial.stream.target()
            if memory is not None:
                self._in_place = True
                self._large_reads = _LARGE_READS
                # No further than this frame: the head of the next one must not get into the message.
                return memory[: partial.left]
        if self._large_reads:
            # Another large message most likely follows. What arrives in the buffer is copied, so this is little.
            self._large_reads -= 1
            return self._receive_buffer.beginning
        return self._view

    def received(self, size: int) -> None:
        """``size`` bytes were put into ``target``."""
        if self.failed:
            return
        self.inside = True
        try:
            # The usual case: whole frames, which are parsed where they were received.
            if self._partial is None and not self.unread:
                used = self._parse(self._buffer, 0, size)
                if used < size:
                    # A copy, since the next bytes come into the same buffer, perhaps those of another connection.
                    self.unread = self._buffer[used:size]
            else:
                self._continue_reading(size)
            if self._partial is not None and self.read_into is not None:
                self._read_scattered(self._partial, self.read_into)
        except Http2ConnectionError as error:
            self.fail(error.code, str(error))
        # Half a window at a time: small requests then cause no window updates of the connection.
        if self._unacknowledged >= CONNECTION_WINDOW >> 1:
            self._open_window()
        self.inside = False

    def _continue_reading(self, size: int) -> None:
        """Read on: ``size`` further bytes have come for something incomplete."""
        partial = self._partial
        if partial is None:
            unread = self.unread + self._view[:size]
            self.unread = unread[self._parse(unread, 0, len(unread)) :]
            return
        if self._in_place:
            # Counted first: with the last part the request is complete, which ``advance`` looks at.
            self._count_part(partial, size)
            if partial.stream is not None:
                partial.stream.advance(size)
            return
        start = self._feed(partial, self._buffer, 0, size)
        if start < size:
            used = self._parse(self._buffer, start, size)
            if used < size:
                self.unread = self._buffer[used:size]

    def _read_scattered(self, partial: IncompleteFrame, read_into: ReadInto) -> None:
        """Read on at once if a large message comes in small frames of one length."""
        stream, length = partial.stream, partial.length
        # Large frames are received into the message one by one.
        if stream is None or partial.ended or partial.skip or not _RUN_BYTES <= length < _IN_PLACE_BYTES:
            return
        memory = stream.target()
        if memory is None or len(memory) - partial.left <= 2 * length:
            return
        if self._unused_chances:
            self._unused_chances -= 1
            return
        read = ScatteredRead(memory, partial, stream.id, self._receive_buffer)
        size = read_into(read.parts, read.size)
        if size:
            self._large_reads = _LARGE_READS
            self._take_scattered(stream, partial, read.received(size))

    def _take_scattered(self, stream: Stream, partial: IncompleteFrame, found: Scattered) -> None:
        """Count what was received into the message, then process what came behind it."""
        length, size = partial.length, found.first
        self._count_part(partial, size)
        if found.frames:
            self._unacknowledged += found.frames * length
            size += found.frames * length
            if stream.id in self.streams:
                self._count(stream, found.frames * length, found.frames)
        if found.begun:
            self._unacknowledged += length
            partial = self._partial = IncompleteFrame(stream, length, 0, False)
            self._count_part(partial, found.begun)
            size += found.begun
        # The stream is gone if that was more than its window allows.
        if stream.id in self.streams:
            stream.advance(size)
        if not found.is_expected:
            self._unused_chances = _UNUSED_CHANCES
        if found.rest:
            rest = bytearray(found.rest)
            self.unread = rest[self._parse(rest, 0, len(rest)) :]

    def _parse(self, buffer: bytearray, position: int, size: int) -> int:
        """Process every complete frame of ``buffer[position:size]``; returns the position after the last one."""
        if not self._started:
            position = self._read_preface(buffer, size)
            if not self._started:
                return position
        # Bound once for all frames: both dictionaries are only changed in place.
        streams = self.streams
        known = self._reader.known
        while size - position >= 9:
            word, flags, stream_id = frame_head.unpack_from(buffer, position)
            start = position + 9
            end = start + (word >> 8)
            if end > size:
                return self._begin_frame(buffer, position, size)
            kind = word & 0xFF
            position = end
            if self._block is not None or not self.settled:
                self._check_order(kind, stream_id)
            if kind == DATA:
                self._unacknowledged += end - start
                # With the reserved bit set the look-up misses, and the slow path below clears the bit.
                stream = streams.get(stream_id)
                if stream is None or stream.flags & (REMOTE_CLOSED | LOCAL_CLOSED) or flags & PADDED or end == start:
                    self._unusual_data(buffer, start, end, flags, stream_id)
                elif flags & END_STREAM:
                    stream.flags |= REMOTE_CLOSED
                    stream.data(buffer, start, end, True)
                elif end - start >= _RUN_BYTES and (memory := stream.target()) and len(memory) >= end - start:
                    position = self._read_run(stream, memory, buffer, start, size)
                elif self._count(stream, end - start):
                    stream.data(buffer, start, end, False)
            elif kind == HEADERS and flags & (END_HEADERS | PADDED | HAS_PRIORITY) == END_HEADERS:
                block = bytes(buffer[start:end])
                # A cached block in a plain frame opens its stream here; everything else takes the slow path.
                head = known.get(block)
                if (
                    head is None
                    or flags & END_STREAM
                    or not self.last_stream_id < stream_id <= MAX_STREAM_ID
                    or len(streams) >= self._room
                    or not stream_id & 1
                ):
                    self._headers(stream_id & MAX_STREAM_ID, bool(flags & END_STREAM), block)
                else:
                    self.last_stream_id = stream_id
                    streams[stream_id] = self._open(self, stream_id, head)
            # Some peers send two for each call, so this frame is not copied out.
            elif kind == WINDOW_UPDATE and end - start == 4:
                self._window_grown(stream_id & MAX_STREAM_ID, int.from_bytes(buffer[start:end], "big"))
            else:
                self._unusual_frame(kind, flags, stream_id & MAX_STREAM_ID, buffer[start:end])
        return position

    def _read_run(self, stream: Stream, memory: memoryview, buffer: bytearray, start: int, size: int) -> int:
        """Read the DATA frame at ``buffer[start - 9]``, which the stream's ``memory`` has room for, and those behind it
        that have the same head and that it has room for too. Returns the position after the last of them.

        Most peers cut a large message into frames of 16 KiB, the most that every peer must accept.
        """
        head = buffer[start - 9 : start]
        length = frame_head.unpack(head)[0] >> 8
        have, room = 0, len(memory) - length
        with memoryview(buffer) as view:
            while have <= room and (end := start + length) <= size:
                memory[have : have + length] = view[start:end]
                have += length
                start = end + 9
                if not buffer.startswith(head, end):
                    break
        self._unacknowledged += have - length
        if self._count(stream, have, have // length):
            stream.advance(have)
        return start - 9

    def _read_preface(self, buffer: bytearray, size: int) -> int:
        if size < len(PREFACE) and PREFACE.startswith(buffer[:size]):
            return 0
        if not buffer.startswith(PREFACE):
            # A client of HTTP/1 could not read a GOAWAY.
            if self._http1_response and _HTTP1_REQUEST.match(buffer, 0, size):
                self.refused = self.failed = True
                self.failure = "the peer speaks HTTP/1"
                self.out.append(self._http1_response)
                return size
            raise Http2ConnectionError(
                Http2ErrorCode.PROTOCOL_ERROR, "the connection does not begin with HTTP/2's preface"
            )
        self._started = True
        self.greet()
        return len(PREFACE)

    def greet(self) -> None:
        """Send the server's preface (3.4), once; call it before sending anything ahead of the client's preface."""
        if not self._greeted:
            self._greeted = True
            settings = {
                Setting.MAX_CONCURRENT_STREAMS: self._max_streams,
                Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                Setting.MAX_FRAME_SIZE: MAX_FRAME_BYTES,
                Setting.MAX_HEADER_LIST_SIZE: MAX_HEADER_LIST_BYTES,
            }
            # No setting changes the window of the connection, which begins at 65,535 bytes (6.9.2).
            self.out.append(encode_settings(settings) + encode_window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW))

    def _check_order(self, kind: int, stream_id: int) -> None:
        """Rules that hold at certain times: settings come first (3.4), a header block is not interrupted (4.3)."""
        if not self.settled and kind != SETTINGS:
            raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, f"frame of type {kind} before the first SETTINGS")
        if self._block is not None and (kind != CONTINUATION or stream_id & MAX_STREAM_ID != self._block.stream_id):
            raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, f"frame of type {kind} within a header block")

    # Frames that have not arrived whole

    def _begin_frame(self, buffer: bytearray, position: int, size: int) -> int:
        """Look at an incomplete frame. DATA is processed as it comes, other frames wait until they are complete."""
        word, flags, stream_id = frame_head.unpack_from(buffer, position)
        length, kind, start = word >> 8, word & 0xFF, position + 9
        # A frame of such a length is incomplete at first, so this is the only place to look at it.
        if length > MAX_FRAME_BYTES:
            raise Http2ConnectionError(Http2ErrorCode.FRAME_SIZE_ERROR, f"frame of {length} bytes")
        if self._block is not None or not self.settled:
            self._check_order(kind, stream_id)
        if kind == DATA:
            if flags & PADDED and start == size:
                # The length of the padding has not arrived.
                return position
            partial = self._partial = self._begin_data(buffer, start, length, flags, stream_id & MAX_STREAM_ID)
            if not partial.left and partial.stream is not None:
                # Nothing but padding.
                self.spend()
                if partial.ended:
                    self._end_request(partial.stream)
            # The byte with the length of the padding has been read.
            return self._feed(partial, buffer, start + (flags & PADDED == PADDED), size)
        # Unknown types have to be ignored (5.5), at any length: their bytes are skipped as they come.
        if kind > CONTINUATION:
            self.spend()
            self._partial = IncompleteFrame(None, 0, length, False)
            return self._feed(self._partial, buffer, start, size)
        # Other frames wait in memory until they are complete.
        if length > MAX_BLOCK_BYTES:
            raise frame_too_long(kind, length)
        return position

    def _begin_data(self, buffer: bytearray, start: int, length: int, flags: int, stream_id: int) -> IncompleteFrame:
        self._unacknowledged += length
        stream = self._find_for_data(stream_id)
        padding = 0
        if flags & PADDED:
            padding = buffer[start]
            if padding >= length:
                raise too_much_padding(padding, length)
            length -= 1
            if stream is not None:
                # Padding counts against the window too; data count when they come.
                self._count(stream, padding + 1, useful=0)
        return IncompleteFrame(stream, length - padding, padding, bool(flags & END_STREAM))

    def _feed(self, partial: IncompleteFrame, buffer: bytearray, start: int, size: int) -> int:
        """Pass on the next part of an incomplete frame, then skip its padding; returns the new position."""
        have = min(partial.left, size - start)
        if have:
            stream = partial.stream
            ended = self._count_part(partial, have)
            # ``_count_part`` may have reset the stream.
            if stream is not None and stream.id in self.streams and not stream.flags & LOCAL_CLOSED:
                stream.data(buffer, start, start + have, ended)
            start += have
        skipped = min(partial.skip, size - start)
        partial.skip -= skipped
        if not partial.left and not partial.skip:
            self._partial = None
        return start + skipped

    def _count_part(self, partial: IncompleteFrame, size: int) -> bool:
        """Count a part of a frame's data; True when it was the last of the request."""
        partial.left -= size
        stream = partial.stream
        if not partial.left and not partial.skip:
            self._partial = None
        if stream is None or stream.id not in self.streams:
            return False
        if partial.left or not partial.ended:
            self._count(stream, size)
            return False
        self._close_remote(stream)
        return True

    # Data

    def _end_request(self, stream: Stream) -> None:
        """The request has ended without more data."""
        # After the response nobody waits for the end of the request.
        dropped = stream.flags & LOCAL_CLOSED
        self._close_remote(stream)
        if not dropped:
            stream.end()

    def _close_remote(self, stream: Stream) -> None:
        stream.flags |= REMOTE_CLOSED
        # A response that waits for a window still needs its stream.
        if stream.flags & LOCAL_CLOSED and not stream.queue:
            self.streams.pop(stream.id, None)
            self.unfinished.discard(stream.id)

    def _find_for_data(self, stream_id: int) -> Stream | None:
        """The stream that data belong to; None when they are to be dropped."""
        stream = self.streams.get(stream_id)
        if stream is not None and not stream.flags & REMOTE_CLOSED:
            return stream
        if self.is_idle(stream_id) or not stream_id:
            raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, f"DATA on idle stream {stream_id}")
        # Data of a stream that was reset here may have been on their way (5.1).
        if stream_id not in self.reset_here:
            self.reset(stream_id, Http2ErrorCode.STREAM_CLOSED)
        self.spend()
        return None

    def _unusual_data(self, buffer: bytearray, start: int, end: int, flags: int, stream_id: int) -> None:
        """A whole DATA frame that is padded or empty, or whose stream does not wait for data."""
        stream = self._find_for_data(stream_id & MAX_STREAM_ID)
        length = end - start
        if flags & PADDED:
            padding = buffer[start] if length else 0
            if padding >= length:
                raise too_much_padding(padding, length)
            start += 1
            end -= padding
        if start == end and not flags & END_STREAM:
            self.spend()
        if stream is None or not self._count(stream, length, useful=int(start < end)):
            return
        if start < end and not stream.flags & LOCAL_CLOSED:
            if flags & END_STREAM:
                self._close_remote(stream)
            stream.data(buffer, start, end, bool(flags & END_STREAM))
        elif flags & END_STREAM:
            self._end_request(stream)

    # Headers

    def _window_grown(self, stream_id: int, increment: int) -> None:
        try:
            self.window_update(stream_id, increment)
        except Http2StreamError as error:
            self.spend()
            self.reset(stream_id, error.code)

    def _unusual_frame(self, kind: int, flags: int, stream_id: int, payload: bytearray) -> None:
        """Any frame but DATA and plain HEADERS."""
        if kind == HEADERS:
            self._begin_block(flags, stream_id, payload)
        elif kind == CONTINUATION and self._block is not None:
            self._continue_block(self._block, flags, payload)
        else:
            if len(payload) > MAX_BLOCK_BYTES and kind < CONTINUATION:
                raise frame_too_long(kind, len(payload))
            try:
                self.control_frame(kind, flags, stream_id, bytes(payload))
            except Http2StreamError as error:
                self.spend()
                self.reset(stream_id, error.code)

    def _begin_block(self, flags: int, stream_id: int, payload: bytearray) -> None:
        begin, end = 0, len(payload)
        if flags & PADDED:
            if not payload or payload[0] >= end:
                raise too_much_padding(payload[0] if payload else 0, end)
            begin = 1
            end -= payload[0]
        # The priority is ignored (5.3.2).
        if flags & HAS_PRIORITY:
            begin += 5
        if begin > end:
            raise Http2ConnectionError(Http2ErrorCode.FRAME_SIZE_ERROR, f"HEADERS of {len(payload)} bytes")
        block = bytes(payload[begin:end])
        if flags & END_HEADERS:
            self._headers(stream_id, bool(flags & END_STREAM), block)
        else:
            self._block = IncompleteBlock(stream_id, bool(flags & END_STREAM), block)

    def _continue_block(self, block: IncompleteBlock, flags: int, payload: bytearray) -> None:
        block.raw += payload
        block.frames += 1
        if len(block.raw) > MAX_BLOCK_BYTES or block.frames > MAX_CONTINUATIONS:
            raise Http2ConnectionError(
                Http2ErrorCode.ENHANCE_YOUR_CALM, f"header block of {len(block.raw)} bytes in {block.frames} frames"
            )
        if flags & END_HEADERS:
            self._block = None
            self._headers(block.stream_id, block.ended, bytes(block.raw))

    def _headers(self, stream_id: int, ended: bool, block: bytes) -> None:
        """A whole header block: a new stream, or the end of one."""
        # Again, since a frame that arrives whole may be larger than a block.
        if len(block) > MAX_BLOCK_BYTES:
            raise Http2ConnectionError(Http2ErrorCode.ENHANCE_YOUR_CALM, f"header block of {len(block)} bytes")
        if stream_id & 1 == 0:
            raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, f"the peer may not open stream {stream_id}")
        if stream_id <= max(self.last_stream_id, self.refused_id):
            self._trailers(stream_id, ended, block)
            return
        # Decoded also for a call that is refused: the block may change the header table.
        try:
            head = self._reader.known.get(block) or self._reader.read(block)
        except Http2StreamError as error:
            # The id is used up, although no stream was opened.
            self.last_stream_id = stream_id
            self.spend()
            self.reset(stream_id, error.code)
            return
        if self._is_full():
            self.spend()
            self.reset(stream_id, Http2ErrorCode.REFUSED_STREAM)
            if self.closed_to_new:
                # Not processed, as the last stream of the GOAWAY says: the peer may send it to another server.
                self.refused_id = stream_id
            else:
                self.last_stream_id = stream_id
            return
        self.last_stream_id = stream_id
        stream = self.streams[stream_id] = self._open(self, stream_id, head)
        if ended:
            self._end_request(stream)

    def _trailers(self, stream_id: int, ended: bool, block: bytes) -> None:
        """A header block behind a request's data."""
        stream = self.streams.get(stream_id)
        if stream is None and stream_id not in self.reset_here:
            raise Http2ConnectionError(Http2ErrorCode.STREAM_CLOSED, f"HEADERS on closed stream {stream_id}")
        try:
            # Also for a stream that was reset: the block may change the header table.
            self._reader.read_trailers(block)
        except Http2StreamError as error:
            self.reset(stream_id, error.code)
            return
        if stream is None:
            self.spend()
        elif stream.flags & REMOTE_CLOSED:
            self.reset(stream_id, Http2ErrorCode.STREAM_CLOSED)
        # Trailers have to end the request (8.1).
        elif not ended:
            self.reset(stream_id, Http2ErrorCode.PROTOCOL_ERROR)
        else:
            self._end_request(stream)
