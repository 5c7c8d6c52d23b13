"""Two sequences side by side on a model with state: python client.py [host:port]"""

import sys

import numpy as np
import tritonclient.http as http

VALUES = (11, 7, 5)


def main(url: str) -> None:
    client = http.InferenceServerClient(url)
    for step, value in enumerate(VALUES):
        for sequence, factor in ((1, 1), (2, 100)):
            given = http.InferInput("INPUT", [1, 1], "INT32")
            given.set_data_from_numpy(np.array([[value * factor]], np.int32))
            found = client.infer(
                "simple_sequence",
                [given],
                sequence_id=sequence,
                sequence_start=step == 0,
                sequence_end=step == len(VALUES) - 1,
            )
            print(f"sequence {sequence}, step {step}: {found.as_numpy('OUTPUT').item()}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:8000")
