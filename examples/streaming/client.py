"""Print the responses of a decoupled model as they arrive: python client.py [host:port of gRPC]"""

import queue
import sys

import numpy as np
import tritonclient.grpc as grpc


def main(url: str) -> None:
    values = np.array([4, 2, 0, 1], np.int32)
    # How many milliseconds each response takes, and the whole request at least.
    delays, wait = np.full(4, 20, np.uint32), np.array([0], np.uint32)
    inputs = []
    for name, array, datatype in (("IN", values, "INT32"), ("DELAY", delays, "UINT32"), ("WAIT", wait, "UINT32")):
        inputs.append(grpc.InferInput(name, list(array.shape), datatype))
        inputs[-1].set_data_from_numpy(array)
    arrived = queue.Queue()
    with grpc.InferenceServerClient(url) as client:
        client.start_stream(lambda result, error: arrived.put((result, error)))
        client.async_stream_infer("repeat_int32", inputs, enable_empty_final_response=True)
        while True:
            result, error = arrived.get(timeout=30)
            if error is not None:
                sys.exit(f"the server says: {error}")
            response = result.get_response()
            if response.outputs:
                print(f"response {result.as_numpy('IDX')[0]}: {result.as_numpy('OUT')[0]}", flush=True)
            if response.parameters["triton_final_response"].bool_param:
                break
    print("end")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:8001")
