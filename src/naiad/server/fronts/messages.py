"""The messages between a front-end process and the engine's process.

A message is a tuple that begins with one of the kinds below. All messages of a turn of the event loop travel in one
frame (``link.py``). A *number* is the identity of a request, an exchange or a call in the front-end process, which made
it. A *place* is what ``Link.place`` returns: the bytes themselves, or where they lie in shared memory.

Inference that takes the fast path, where the front end has parsed and checked a request::

    OPTIONS      number of the options, their fields                                     front -> engine
    INPUTS       number of a layout, the layout                                          front -> engine
    INFER        model, options, layout, carrier, rows of                                front -> engine
                 (number, id, received, queued, bytes, places)
    CANCEL       number                                                                  front -> engine
    OUTPUTS      number of a layout, the layout                                          engine -> front
    RESPONSE     layout, rows of (number, places)                                        engine -> front
    RESPONSES    layout, places of the rows of all requests, numbers                     engine -> front
    RESPONSE_OF  number, layout, version or 0, parameters, places                        engine -> front
    FAILURE      number, HTTP status, gRPC code, text, name of the error's class,        engine -> front
                 whether the submission failed

Everything else goes to the engine as it came, and comes back as it is to be sent::

    HTTP         number, address of the peer, the request's head, place of the body      front -> engine
    HTTP_CANCEL  number, whether the connection is gone                                  front -> engine
    HTTP_WHOLE   number, beginning of the response, place of the rest or None            engine -> front
    HTTP_PART    number, place; the first one begins with the head                       engine -> front
    HTTP_END     number                                                                  engine -> front
    HTTP_TAKEN   number, bytes that the peer has taken                                   front -> engine

    CALL         number, path, metadata, place of the message                            front -> engine
    CALL_OPEN    number, path, metadata                                                  front -> engine
    CALL_MESSAGE, CALL_END, CALL_STOP, CALL_CANCEL, CALL_TAKEN                           front -> engine
    CALL_READ    number, bytes of messages that the engine has read                      engine -> front
    CALL_REPLY   number, place                                                           engine -> front
    CALL_SEND, CALL_PAUSE, CALL_RESUME                                                   engine -> front
    CALL_FINISH  number, code, text, trailing metadata                                   engine -> front

Models that front ends run themselves, their replicas (``replicas/``)::

    REPLICAS       numbers of replicas that are gone, pickled descriptions of new ones   engine -> front
    REPLICA_SERVES number                                                                front -> engine
    REPLICA_ENDED  number                                                                front -> engine
    WATCH          number, whether its latencies are wanted                              engine -> front
    REPORT         mark                                                                  engine -> front
    REPLICA_COUNTS rows of (number, counts or None, requests in the queue), mark or 0,   front -> engine
                   requests in flight and their bytes

And about the processes themselves: see the comments below.
"""

from __future__ import annotations

from typing import Final

# Inference.
OPTIONS: Final = 0
INPUTS: Final = 1
INFER: Final = 2
CANCEL: Final = 3
OUTPUTS: Final = 4
RESPONSE: Final = 5
FAILURE: Final = 6
# HTTP as it is.
HTTP: Final = 7
HTTP_CANCEL: Final = 8
HTTP_WHOLE: Final = 9
HTTP_PART: Final = 10
HTTP_END: Final = 11
HTTP_TAKEN: Final = 12
# gRPC as it is.
CALL: Final = 13
CALL_OPEN: Final = 14
CALL_MESSAGE: Final = 15
CALL_END: Final = 16
CALL_STOP: Final = 17
CALL_CANCEL: Final = 18
CALL_TAKEN: Final = 19
CALL_REPLY: Final = 20
CALL_SEND: Final = 21
CALL_FINISH: Final = 22
CALL_PAUSE: Final = 23
CALL_RESUME: Final = 24
# Processes. METHODS: the paths of all gRPC methods with whether each is a stream and is compressed. MODELS: numbers of
# models that are gone, pickled descriptions of new ones, the generation of the table. FORGET: the sender's options and
# layouts are void.
METHODS: Final = 25
MODELS: Final = 26
FORGET: Final = 27
# LISTENING: ports by title. COUNTS: connections by protocol, and counters that have grown. DRAIN: seconds. DRAINED:
# whether all requests were finished in time.
LISTENING: Final = 28
COUNTS: Final = 29
DRAIN: Final = 30
DRAINED: Final = 31
# Segments of shared memory: RELEASE names those of the other side that are free again, DROP those of this side that
# are gone, DROP_ARENAS arenas of this side that are gone.
RELEASE: Final = 32
DROP: Final = 33
DROP_ARENAS: Final = 45
RESPONSE_OF: Final = 34
RESPONSES: Final = 37
# LOADED: the engine has tried to load every model of its start.
LOADED: Final = 35
# LOG: the settings of the log.
LOG: Final = 36
CALL_READ: Final = 38
REPLICAS: Final = 39
REPLICA_ENDED: Final = 40
REPORT: Final = 41
REPLICA_COUNTS: Final = 42
REPLICA_SERVES: Final = 43
WATCH: Final = 44
# The last field of these is a list of rows; several that are otherwise equal say the same as one with all their rows.
WITH_ROWS: Final = frozenset((INFER, RESPONSE))
# Of a stream, the bytes of messages on their way to the engine, after which one more may have any size; and what a
# message counts beside its own bytes.
WINDOW_BYTES: Final = 1 << 20
MESSAGE_BYTES: Final = 1 << 10
