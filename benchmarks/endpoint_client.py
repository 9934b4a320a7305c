"""Processor time of the endpoint client: a request without media, and a photo with eight repeats.

`python benchmarks/endpoint_client.py` starts a server of its own, in another process, that answers at once with one
answer a request whatever it is asked for. A photo is 1,216 x 896 pixels of noise over a gradient. "Encoded" times
Pillow alone on the same photo in the same run: a photo's eight repeats cannot take less than one of it.
"""

from __future__ import annotations

import io
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from PIL import Image

from atrl_bench.models.chat_client import EndpointConfig
from atrl_bench.models.prompt import Prompt, Sampling
from atrl_bench.models.served import EndpointModel

SERVER = """
import socket, sys, threading
reply = sys.argv[1].encode()
head = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(reply)
def talk(connection):
    data = b""
    while True:
        while b"\\r\\n\\r\\n" not in data:
            more = connection.recv(1 << 20)
            if not more:
                return
            data += more
        top, _, data = data.partition(b"\\r\\n\\r\\n")
        size = next(int(l.split(b":")[1]) for l in top.split(b"\\r\\n") if l.lower().startswith(b"content-length"))
        left = size - len(data)
        while left > 0:
            left -= len(connection.recv(min(left, 1 << 20)))
        data = b""
        connection.sendall(head + reply)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()
"""
REPLY = {
    "choices": [{"message": {"role": "assistant", "content": "It is \\boxed{7}."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 900, "completion_tokens": 9},
}
ROUNDS, REQUESTS, REPEATS = 5, 200, 8


def photo(seed: int) -> Image.Image:
    rng = np.random.default_rng(seed)
    slope = np.linspace(0, 200, 1216)[None, :, None] + np.linspace(0, 40, 896)[:, None, None]
    return Image.fromarray((slope + rng.integers(0, 12, (896, 1216, 3))).astype(np.uint8))


def prompt(name: str, image: Image.Image | None = None) -> Prompt:
    content = [{"type": "text", "text": f"Question {name}: how many apples are left, if there were twelve?"}]
    if image is not None:
        content.insert(0, {"type": "image", "url": image})
    return Prompt(name, [{"role": "user", "content": content}], [image] if image else [])


def all_repeats(model: EndpointModel, one: Prompt) -> None:
    """Ask for every repeat, as the loop does where a server gives one answer a request."""
    left = list(range(REPEATS))
    while left:
        [answers] = model.generate([one], [left], Sampling(64, 0.1))
        left = left[len(answers) :]


def milliseconds(work: Callable[[], object]) -> float:
    """Return the median processor time of the work over the rounds."""
    spent = []
    for _ in range(ROUNDS):
        before = time.process_time()
        work()
        spent.append(1000 * (time.process_time() - before))
    return statistics.median(spent)


def main() -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, json.dumps(REPLY)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        model = EndpointModel(EndpointConfig(url, "served"))
        all_repeats(model, prompt("first"))  # connects, and learns that the server gives one answer at a time
        texts = [prompt(str(number)) for number in range(REQUESTS)]
        request = milliseconds(lambda: [model.generate([one], [[0]], Sampling(64, 0.1)) for one in texts]) / REQUESTS
        image, others = photo(0), iter([photo(seed) for seed in range(1, ROUNDS + 1)])
        encoded = milliseconds(lambda: image.save(io.BytesIO(), format="PNG", compress_level=1))
        repeats = milliseconds(lambda: all_repeats(model, prompt("photo", next(others))))
    finally:
        server.kill()
    print(f"a request without media        {request:8.2f} ms")
    print(f"a photo of {image.width * image.height / 1e6:.2f} MP encoded once {encoded:7.1f} ms")
    print(f"the photo asked {REPEATS} times         {repeats:7.1f} ms, {repeats / encoded:.1f} encodings")


if __name__ == "__main__":
    main()
