"""A stand-in for the program `vllm`: a real HTTP server in a process of its own, which serves a real model.

`vllm serve FOLDER --served-model-name NAME --port PORT ...` loads the folder with the precision and the bounds on
images of its flags and answers `/health` and `/v1/chat/completions`, one request at a time. What it was started with
and that it was stopped goes to the file in STAND_IN_DIARY. STAND_IN says what it does wrong.
"""

import argparse
import base64
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

VERSION = "0.30.9"
MANY_TOKENS = {  # as if images were read as they are
    "choices": [{"message": {"content": "A"}, "finish_reason": "length"}],
    "usage": {"completion_tokens": 1, "prompt_tokens": 999},
}


def main(words: Sequence[str]) -> None:
    if list(words) == ["--version"]:
        print(VERSION)
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("folder", type=Path)
    for name in ("served-model-name", "host", "dtype", "generation-config", "limit-mm-per-prompt"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("port", "max-model-len", "kv-cache-memory-bytes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--mm-processor-kwargs", type=json.loads, required=True)
    parser.add_argument("--no-enable-chunked-prefill", action="store_true")
    parser.add_argument("--enforce-eager", action="store_true")
    options = parser.parse_args(words)
    wrong = os.environ.get("STAND_IN", "")
    write_down(f"start {options.served_model_name}")
    if wrong == "does not start":
        print("ValueError: no room for the KV cache")
        sys.exit(1)
    signal.signal(signal.SIGTERM, lambda *_: (write_down(f"stop {options.served_model_name}"), os._exit(0)))
    model = None if wrong == "forgets pixels" else Model(options.folder, options.mm_processor_kwargs, options.dtype)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections are kept

        def do_GET(self) -> None:
            self.reply({})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if wrong == "dies" and body["max_tokens"] > 1:
                print("EngineDeadError: the engine has died", flush=True)
                os._exit(1)
            self.reply(model.answer(body) if model else MANY_TOKENS)

        def reply(self, content: dict[str, Any]) -> None:
            data = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    ThreadingHTTPServer((options.host, options.port), Handler).serve_forever()


def write_down(line: str) -> None:
    if diary := os.environ.get("STAND_IN_DIARY"):
        with Path(diary).open("a") as file:
            file.write(f"{line}\n")


class Model:
    """A model of a folder, which remembers what it saw; its server may count the token that ends an answer."""

    def __init__(self, folder: Path, pixels: dict[str, int], dtype: str, *, counts_ends: bool = True) -> None:
        from atrl_bench.models import local

        self.lock, self.counts_ends, self.seen = threading.Lock(), counts_ends, set[str]()
        self.model = local.load(local.find_model(folder), **pixels, dtype=dtype)

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        from atrl_bench.models.local import model_inputs
        from atrl_bench.models.prompt import Prompt, Sampling

        content = [self.part(part) for turn in body["messages"] for part in turn["content"]]
        images = [part["image"] for part in content if part["type"] == "image"]
        prompt = Prompt("served", [{"role": "user", "content": content}], images)
        sampling = Sampling(body["max_tokens"], body["temperature"], body.get("top_p", 1.0), body.get("seed", 0))
        with self.lock:
            [answers] = self.model.generate([prompt], [range(body.get("n", 1))], sampling)
            inputs = model_inputs(
                self.model.processor, [self.model.chat_text(prompt)], [prompt], self.model.model.dtype
            )
        choices = [
            {"message": {"content": one.text}, "finish_reason": "length" if one.truncated else "stop"}
            for one in answers
        ]
        self.seen.update(one.prompt_hash for one in answers)
        num_tokens = sum(one.num_tokens + (self.counts_ends and not one.truncated) for one in answers)
        return {
            "choices": choices,
            "usage": {"completion_tokens": num_tokens, "prompt_tokens": inputs["input_ids"].shape[1]},
        }

    @staticmethod
    def part(part: dict[str, Any]) -> dict[str, Any]:
        from PIL import Image

        if part["type"] == "text":
            return part
        head, _, data = part["image_url"]["url"].partition(",")
        assert head == "data:image/png;base64"
        return {"type": "image", "image": Image.open(io.BytesIO(base64.b64decode(data)))}


if __name__ == "__main__":
    main(sys.argv[1:])
