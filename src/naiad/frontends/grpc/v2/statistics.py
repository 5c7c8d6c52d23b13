"""``ModelStatistics``."""

from __future__ import annotations

from naiad.config.messages import message_class
from naiad.engine.engine import Engine
from naiad.engine.statistics import statistics_of
from naiad.errors import NaiadError
from naiad.frontends.grpc.rpc.call import Body, RpcCall, Unary, fail
from naiad.frontends.grpc.v2.replies import check_size, read_request
from naiad.frontends.grpc.v2.sliced_reply import reply_in_slices


def statistics_method(engine: Engine) -> Unary:
    """The method for the statistics of a version, of a model, or of all models where no name is given."""
    request_type, response_type = message_class("ModelStatisticsRequest"), message_class("ModelStatisticsResponse")

    def handle(call: RpcCall, body: Body) -> None:
        request = read_request(call, request_type, body)
        if request is None:
            return
        try:
            versions = engine.counted_versions(request.name or None, request.version)
        except NaiadError as error:
            fail(call, error)
            return
        response = response_type()
        add = response.model_stats.add
        reply_in_slices(engine, call, response, versions, lambda model: add(**statistics_of(model)))

    return Unary(handle, check_room=check_size)
