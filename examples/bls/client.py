"""Ask the model ``route`` for a sum or a difference: python client.py add|sub [host:port]"""

import sys

import numpy as np

from naiad.client import Client, ResponseError


def main(operation: str, url: str) -> None:
    numbers = np.arange(16, dtype=np.int32)[None]
    with Client(url) as client:
        try:
            found = client.infer("route", {"INPUT0": numbers, "INPUT1": numbers * 0 + 1, "OPERATION": [operation]})
        except ResponseError as error:
            sys.exit(f"the server says: {error}")
    print(*found["RESULT"].ravel())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "localhost:8000")
