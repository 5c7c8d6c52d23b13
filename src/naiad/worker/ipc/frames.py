"""The protocol between a server and a worker, over a pair of connected stream sockets.

Both sides send frames. A frame is a head of 16 bytes and a payload::

    u32 kind, u32 payload bytes, u64 number        (little-endian, like everything below)

``number`` identifies the subject of the frame, such as a batch or a request; the kind decides.
Text is UTF-8; JSON payloads are objects.

**Schemas.** What requests or responses have in common (names, datatypes, shapes, parameters) is sent once, as a schema
with a number, before the first frame that uses it. Each side numbers its own schemas from 1.
``FORGET_SCHEMAS`` makes all schemas of the sender void; numbers then begin at 1 again.

A request's schema: ``{"inputs": [[name, datatype, shape], ...], "outputs": [name, ...], "parameters": {...},
"timeout_us": n, "flags": n, "correlation_id": n or text, "trace": text or null, "decoupled": bool}``.
A response's schema: ``{"outputs": [[name, datatype, shape], ...], "parameters": {...}}``.
Datatypes are the wire names (``FP32``). BF16 and BYTES travel as the protocol's bytes (BYTES: each element with its
length of four bytes).

**Tensors.** Each tensor of a request or a response has a place: ``u32 segment, u32 kind, u64 offset, u64 bytes``.
The kind is 0, except for ``IN_REGION``, ``IN_INPUT`` and ``IN_PARTS``.
Segment 0 is the data part of the frame itself, which comes after all else and begins at a multiple of ``ALIGNMENT``
from the beginning of the payload; offsets count from there, and tensors are aligned to ``ALIGNMENT`` in it. Small
tensors travel like this, tensors of ``SEGMENT_BYTES`` and more in a segment.

**Segments.** A segment is shared memory: a file without a name, whose descriptor comes with the ``SEGMENT`` frame that
introduces it (SCM_RIGHTS on the first byte of that frame). Each side numbers its own segments from 1, and owns them: it
alone puts tensors there, and reuses them when the other side has released them. A segment holds one tensor at
a time. ``DROP_SEGMENT`` tells the other side to unmap one for good. A process that dies leaves nothing behind.

**Arenas.** Large tensors that were received into an arena of the model are not copied to a segment: their place has a
number of ``LENT`` or more, which the server chooses, and an offset in the arena, with the arena's number above
``ARENA_SHIFT``. ``ARENA`` introduces an arena, and ``DROP_ARENA`` tells the worker to unmap it for good. The number of
a tensor is released like that of a segment. An output that lies in such an input may stay there: its place has the kind
``IN_INPUT``, the input's number, and an offset in the input, which is released behind the frame.

**Regions.** A region is shared memory of a client: a file that the server has open, whose descriptor comes with the
``REGION`` frame (as that of a segment). ``DROP_REGION`` tells the worker to close it; no request uses it any more. A
place of the kind ``IN_REGION`` has the number of a region instead of a segment's, and offset and size in that file. The
worker reads inputs from there, and writes outputs there: a request's schema may have ``"placed": [name, ...]``, and
then each request has one more place for each of these outputs, behind those of its inputs. Such an output is in its
region when the response is sent, whose place for it is of that kind. Clients may truncate their regions at any time,
which costs the request an error and nothing else.

**A batch.** ``EXECUTE`` (number: the batch) has ``u32 requests, u32 reserved`` and for each request::

    u64 request, u32 schema, u16 bytes of the id, u16 reserved, then per input of the schema a place, then the id

A batch may be sent while another one runs, and begins behind it. The worker responds to every request with ``RESPONSE``
frames and ends the batch with ``DONE``. In default mode ``RESPONSES`` (number: the batch) carries all responses at once
and ends the batch as well. A response is::

    u64 request, u32 schema, u32 flags, u32 bytes of the error, u32 reserved, then per output a place, then the error

``schema`` 0 means no outputs and no parameters. ``RESPONSES`` begins with ``u32 responses, u32 reserved``; ``RESPONSE``
has one response alone (number: the request). ``FLAG_FINAL``: no further response follows for that request.
``FLAG_ERROR``: the error is JSON ``{"message": text, "code": n}`` with a gRPC status code; with ``FLAG_OWN`` it is a
response that the model chose, and not a failure. ``FLAG_EMPTY``: there is no response, only the end.
``FLAG_RESCHEDULE`` (with ``FLAG_FINAL`` and ``FLAG_EMPTY``): the model rescheduled the request, which is
to be queued again.

**Uniform requests.** Most batches are made of requests of one schema with small tensors of fixed size.
``EXECUTE_UNIFORM`` (number: the batch) describes all of them at once::

    u64 first request, u32 requests, u32 schema, u32 bytes of the ids, u32 column

then the column, then the ids with a zero byte between each two (or nothing when no request has one), then the data
part: the tensors of one request after the other in the order of the schema, each beginning at a multiple of
``ALIGNMENT``. The requests are numbered one after the other. When each of them has one plain response, and all of one
schema with small tensors that are not BYTES, ``RESPONSES_UNIFORM`` (number: the batch) may answer them: ``u32
responses, u32 schema``, then the data part, laid out likewise. All of these responses are final.

The column says in what else the requests differ. 0: in nothing. ``COLUMN_STEPS``: in their sequences, with ``u64
correlation id, u32 flags, u32 reserved`` for each request; those of the schema count for nothing, and ids of sequences
that are texts travel with schemas of their own. ``COLUMN_PLACES``: in where their tensors lie, all of them in regions,
with the places of each request as ``EXECUTE`` has them; there is no data part.

A request that has no final response when its batch ends stays open: the model still holds its response sender, and a
``RESPONSE`` with ``FLAG_FINAL`` comes later, an error if the model releases the sender. This is the rule in
decoupled mode (where ``async def execute`` ends its batch at once) and possible in default mode. The worker keeps the
tensors of a request until it says ``RELEASE`` for their segments; those inside the frame live as long as it needs
them. In default mode it releases them with the responses of the batch.

**Models of frameworks** outside the server's process use a part of this protocol. ``INIT`` holds
``{"version", "orders"}``, a step of loading; there may be several, each answered by ``CONFIG``, ``READY`` or
``FAILED``. A batch is one request: its inputs are those of all requests, one behind the other, and its one response
(``RESPONSES``) has the outputs of all. Large inputs of several requests stay apart: the place of such an input has the
kind ``IN_PARTS``, the number of parts in place of a segment's, an offset in the data part, where the places of the
parts lie, and the bytes of all of them.
"""

from __future__ import annotations

import struct

VERSION = 1
ALIGNMENT = 64
SEGMENT_BYTES = 1 << 15

FRAME = struct.Struct("<IIQ")
COUNT = struct.Struct("<II")
REQUEST = struct.Struct("<QIHH")
PLACE = struct.Struct("<IIQQ")
RESPONSE_HEAD = struct.Struct("<QIIII")
UNIFORM = struct.Struct("<QIIII")
STEP = struct.Struct("<QII")
NUMBERS = struct.Struct("<I")

LENT = 1 << 31
ARENA_SHIFT = 40
IN_REGION = 1
IN_INPUT = 2
IN_PARTS = 3
COLUMN_STEPS = 1
COLUMN_PLACES = 2

FLAG_FINAL = 1
FLAG_ERROR = 2
FLAG_EMPTY = 4
FLAG_RESCHEDULE = 8
FLAG_OWN = 16

# From the server.
INIT = 1
"""JSON ``{"version": 1, "mode": "serve" or "complete", "model_py": path, "model_directory": what
get_model_dir() says (left out: the folder of model_py), "paths": [folders for sys.path], "args": the
arguments of initialize (all text), "config": the configuration as JSON, "decoupled": bool, "memory_bytes": how much
private memory it may have, 0 for any (left out: 0)}``. In mode ``serve`` the worker answers ``READY`` or ``FAILED``; in
mode ``complete`` it answers ``CONFIG`` or ``FAILED`` and ends."""
EXECUTE = 2
CANCEL = 3
"""number: the request, which its caller cancelled."""
FINALIZE = 4
"""Finish, call finalize() and end with exit code 0."""
CHECK_READY = 5
"""number: echoed. Answered by ``IS_READY``, unless a check still runs."""
PING = 6
"""number: echoed in ``PONG``, by a thread of its own: it shows that the process is alive, not that the model is."""
CALL_RESPONSE = 7
"""A response to a call of the model (BLS). number: the call. Payload: one response."""
REPLY = 8
"""The reply to ``CONTROL_REQUEST``. number: the request. JSON ``{"value": ...}`` or
``{"error": {"message": text, "code": n}}``."""
OPEN = 9
"""To the shared process of a framework's models, instead of orders: the connection of another instance, whose
descriptor comes along. It is served like a process's own, by a thread of its own."""
EXECUTE_UNIFORM = 10
REGION = 11
"""number: the region. Payload: its name. The descriptor comes along."""
DROP_REGION = 12
"""number: the region."""
PAUSE = 13
"""number: the request whose caller does not take its responses. Payload: u32 milliseconds for which a thread may wait
that other requests need. Nothing may be sent for it, by threads that can wait, until ``RESUME`` or ``CANCEL``."""
RESUME = 14
"""number: the request whose caller takes its responses again."""
SKIP = 15
"""number: a batch that need not run, unless it has begun; its responses count for nothing, and need not come."""
ARENA = 16
"""number: the arena. Payload: u64 bytes. The descriptor comes along."""
DROP_ARENA = 17
"""number: the arena."""

# From the worker.
READY = 33
"""JSON ``{"is_ready": whether the model has that method, "pid": n, "python": text}``."""
FAILED = 34
"""JSON ``{"message": text, "traceback": text}``, and of a framework's model ``"error"``, the name of a class of
``naiad.errors``. The worker ends after it."""
CONFIG = 35
"""JSON ``{"config": the completed configuration}``."""
RESPONSES = 36
RESPONSE = 37
DONE = 38
"""number: the batch. JSON ``{}``, or ``{"message": text}`` when execute failed as a whole: every request of the
batch that has no response yet gets that error."""
IS_READY = 39
"""number: echoed. JSON ``{"ready": bool}`` or ``{"error": text}``."""
PONG = 40
LOG = 41
"""JSON ``{"level": "INFO", "WARNING", "ERROR" or "VERBOSE", "file": text, "line": n, "message": text}``;
with ``"once": text`` it is written only if no worker has sent a line with the same text before."""
CALL = 42
"""A call of another model (BLS). number: the call, which the worker chooses. Payload: ``u32 bytes of a JSON head, u32
reserved``, the head ``{"model": name, "version": n, "id": text, "decoupled": bool, "timeout_us": n, "parent":
request}``, then one request with a schema, as in ``EXECUTE`` (its number is not used)."""
CANCEL_CALL = 43
"""number: the call."""
CONTROL_REQUEST = 44
"""A control request. number: the request, which the worker chooses. JSON ``{"what": "load_model", ...}``; see
``api/control.py`` of the worker for all of them."""
NOTIFICATION = 45
"""A notification: like ``CONTROL_REQUEST``, without a reply."""
RESPONSES_UNIFORM = 46

CATCH_UP = "catch_up"
"""What ``CONTROL_REQUEST`` says when only its reply matters: the server has taken in what was sent before."""

# From both sides.
SCHEMA = 65
"""number: the schema. JSON."""
FORGET_SCHEMAS = 66
SEGMENT = 67
"""number: the segment. Payload: u64 bytes. The descriptor comes along."""
RELEASE = 68
"""Payload: u32 numbers of the other side's segments whose tensors are no longer in use."""
DROP_SEGMENT = 69
"""number: one of the sender's own segments, which the other side is to unmap."""
