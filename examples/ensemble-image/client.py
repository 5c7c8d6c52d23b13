"""Ask for the classes of an image file: python client.py photo.jpg [host:port]"""

import sys
from pathlib import Path

import numpy as np
import tritonclient.http as http


def classes(path: str, url: str) -> list[tuple[str, float]]:
    file = np.frombuffer(Path(path).read_bytes(), np.uint8)[None]
    given = http.InferInput("IMAGE", list(file.shape), "UINT8")
    given.set_data_from_numpy(file)
    found = http.InferenceServerClient(url).infer("image_classes", [given])
    names, scores = found.as_numpy("CLASS")[0], found.as_numpy("SCORE")[0]
    return [(name.decode(), float(score)) for name, score in zip(names, scores, strict=True)]


if __name__ == "__main__":
    for name, score in classes(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "localhost:8000"):
        print(f"{score:8.2%}  {name}")
