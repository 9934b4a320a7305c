"""A model behind a real HTTP server on this machine: one that answers as it should, and many that do not."""

import base64
import io
import json
import re
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_backend import picture, write_geoqa
from http_servers import ChatServer, completion
from PIL import Image
from vllm_stand_in import Model

from atrl_bench.errors import EndpointError, InvalidFileError
from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.cell_spec import EvaluationOptions, cell_spec
from atrl_bench.mini.world import write_world
from atrl_bench.models import local, served
from atrl_bench.models.chat_client import ChatClient, EndpointConfig
from atrl_bench.models.completion import Completion, NoReplyError, shares, without_ends
from atrl_bench.models.prompt import Prompt, Sampling
from atrl_bench.models.served import EndpointModel, chat_messages, data_url, request_seed
from atrl_bench.models.video import Video
from atrl_bench.profiles import load_profile

PROFILE = load_profile("smoke")
GREEDY = PROFILE.model_copy(update={"evaluation": PROFILE.evaluation.model_copy(update={"temperature": 0.0})})


ANSWER = "The answer is \\boxed{0}."


def refusal(status: int, message: str, code: str | None = None) -> tuple[int, dict[str, str], bytes]:
    return status, {}, json.dumps({"error": {"message": message, "code": code}}).encode()


def asked_about(server: ChatServer) -> Counter[str]:
    """How many answers each question was asked for."""
    counts: Counter[str] = Counter()
    for body in server.requests:
        text = next(part["text"] for part in body["messages"][-1]["content"] if part["type"] == "text")
        counts[text.split("Question ")[1].split()[0]] += body.get("n", 1)
    return counts


# The same question, the same answer -------------------------------------------------------------------------------


class MiniServer(ChatServer):
    """Serves the mini model, which reads the images out of the request."""

    def __init__(self, sizes: Any) -> None:
        super().__init__(answer=lambda body: json.dumps(self.mini.answer(body)).encode())
        pixels = {"min_pixels": sizes.min_pixels, "max_pixels": sizes.max_pixels}
        self.mini = Model(local.find_model("mini").folder, pixels, sizes.dtype, counts_ends=False)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    return write_world(tmp_path_factory.mktemp("world"), GREEDY, ["geoqa", "mathverse", "wemath", "mmmu"])


@pytest.mark.parametrize("task", ["geoqa_test", "mathverse_testmini", "wemath_testmini", "mmmu_val"])
def test_a_served_model_sees_the_same_words_and_pixels_and_gives_the_same_answers(task, store, world) -> None:
    where = {"store": store, "profile": GREEDY, "data_dir": world}
    ours = store.responses(evaluate("mini", task, EvaluationOptions(limit=6, repeats=1), **where))
    with MiniServer(GREEDY.evaluation) as server:
        options = EvaluationOptions(limit=6, repeats=1, endpoint=server.endpoint(num_parallel=3))
        served = store.responses(evaluate("mini", task, options, **where))
    local.release()
    assert len(ours) == 6
    # The hash of a local answer is of the text after the chat template and of every pixel.
    assert server.mini.seen == {response.prompt_hash for response in ours.values()}

    def answers(responses):
        return {name: (r.text, r.num_tokens, r.truncated) for name, r in responses.items()}

    assert answers(served) == answers(ours)


def test_several_images_stay_where_they_stand_among_the_words() -> None:
    first, second = Image.new("RGB", (60, 80), "red"), Image.new("RGB", (90, 70), (1, 2, 3))
    content = [
        {"type": "text", "text": "Compare "},
        {"type": "image", "url": first},
        {"type": "text", "text": " and "},
        {"type": "image", "url": second},
    ]
    prompt = Prompt("a", [{"role": "user", "content": content}], [first, second])
    [turn] = chat_messages(prompt)
    assert [part["type"] for part in turn["content"]] == ["text", "image_url", "text", "image_url"]
    sizes = GREEDY.evaluation
    with MiniServer(sizes) as server:
        served = EndpointModel(server.endpoint()).generate([prompt], [[0]], Sampling(8, temperature=0.0))
        ours = server.mini.model.generate([prompt], [[0]], Sampling(8, temperature=0.0))
    local.release()
    assert served[0][0].text == ours[0][0].text
    assert server.mini.seen == {ours[0][0].prompt_hash}


def test_a_video_is_sent_as_its_frames_in_order() -> None:
    frames = np.stack([np.full((28, 56, 3), shade, dtype=np.uint8) for shade in (0, 90, 180, 255)])
    content = [{"type": "video", "url": "walk.mp4"}, {"type": "text", "text": "What happens?"}]
    video = Video(frames, (0, 10, 20, 30), 31, 10.0)
    [turn] = chat_messages(Prompt("a", [{"role": "user", "content": content}], [], (video,)))
    *sent, text = turn["content"]
    decoded = [Image.open(io.BytesIO(base64.b64decode(part["image_url"]["url"].partition(",")[2]))) for part in sent]
    assert [image.getpixel((0, 0)) for image in decoded] == [(0, 0, 0), (90, 90, 90), (180, 180, 180), (255, 255, 255)]
    assert text == {"type": "text", "text": "What happens?"}


def test_every_question_of_a_run_has_a_seed_of_its_own_and_keeps_it() -> None:
    seeds = {request_seed(run, problem, repeat) for run in (0, 1) for problem in ("a", "b") for repeat in range(8)}
    assert len(seeds) == 32
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert request_seed(0, "a", 0) == request_seed(0, "a", 0)


def test_the_key_of_a_cell_has_the_served_name_and_not_the_address(tmp_path) -> None:
    base = {"profile": PROFILE, "data_dir": write_geoqa(tmp_path, [picture()] * 1)}

    def spec(endpoint: EndpointConfig):
        return cell_spec("x", "geoqa_test", EvaluationOptions(endpoint=endpoint), **base)

    here = spec(EndpointConfig("http://here/v1", "qwen"))
    there = spec(EndpointConfig("http://there/v1", "qwen", num_parallel=2))
    other = spec(EndpointConfig("http://here/v1", "other"))
    assert here.key == there.key != other.key
    assert (here.model_name, here.model_digest) == ("qwen", "endpoint:qwen")
    assert here.as_dict()["decoding"]["max_pixels"] is None  # the server's own


# Servers of every kind --------------------------------------------------------------------------------------------


@pytest.fixture
def asked(store, tmp_path):
    """Return a function that asks a server about so many problems of GeoQA and returns the key of their cell."""

    def ask(server: ChatServer, num_problems: int = 1, repeats: int | None = None, **endpoint: Any) -> str:
        if not (data := tmp_path / "data").exists():
            write_geoqa(data, [picture()] * num_problems)
        options = EvaluationOptions(endpoint=server.endpoint(**endpoint), repeats=repeats)
        return evaluate("mini", "geoqa_test", options, store=store, profile=PROFILE, data_dir=data)

    return ask


PROMPT = Prompt("a", [{"role": "user", "content": [{"type": "text", "text": "Question 0"}]}], [])
WARM = Sampling(8, temperature=1.0)


def test_all_repeats_of_a_problem_are_one_request_where_the_server_knows_n() -> None:
    with ChatServer(completion("ab", "abcdef", tokens=8)) as server:
        [answers] = EndpointModel(server.endpoint()).generate([PROMPT], [[4, 5]], WARM)
    [body] = server.requests
    assert (body["n"], body["seed"], body["max_tokens"], body["top_p"]) == (2, request_seed(0, "a", 4), 8, 1.0)
    # Eight tokens for both: two letters of eight have two of them, six have six.
    assert [(answer.text, answer.num_tokens) for answer in answers] == [("ab", 2), ("abcdef", 6)]


def test_token_counts_add_up_to_what_the_server_said() -> None:
    assert shares(10, [1, 1, 1]) == [3, 4, 3]
    assert shares(0, [5, 5]) == [0, 0]
    assert shares(7, [0, 0]) == [0, 0]


def test_a_server_that_gives_one_answer_a_request_is_asked_for_one_at_a_time(store, asked) -> None:
    with ChatServer(completion("\\boxed{0}")) as server:
        key = asked(server, 2, repeats=3)
    assert len(store.responses(key)) == 6
    # At most one request a thread was under way when the first reply told.
    assert Counter(body.get("n", 1) for body in server.requests)[1] >= 4
    assert len(server.requests) == 6


def test_where_a_server_gives_one_answer_a_request_the_repeats_of_a_problem_are_asked_for_side_by_side(
    store, asked
) -> None:
    all_there = threading.Barrier(7)  # broken after ten seconds, should they come one after another

    first = iter([True])

    def reply(body: dict[str, Any]) -> Any:
        if not next(first, False):
            all_there.wait(timeout=10)
        return completion("\\boxed{0}")

    with ChatServer(answer=reply) as server:
        key = asked(server, repeats=8)
    assert sorted(repeat for _, repeat in store.responses(key)) == list(range(8))
    assert not all_there.broken


def test_a_photo_is_encoded_once_for_all_repeats_and_all_problems_that_show_it(monkeypatch) -> None:
    encoded: list[Any] = []
    monkeypatch.setattr(served, "data_url", lambda image: encoded.append(image.size) or data_url(image))
    photo, other = Image.new("RGB", (300, 200), "red"), Image.new("RGB", (300, 200), "blue")

    def shows(name: str, image: Image.Image) -> Prompt:
        content = [{"type": "image", "url": image}, {"type": "text", "text": f"Question {name}"}]
        return Prompt(name, [{"role": "user", "content": content}], [image])

    prompt = shows("a", photo)
    with ChatServer(completion("\\boxed{0}")) as server:
        model = EndpointModel(server.endpoint())
        for repeat in range(8):
            model.generate([prompt], [[repeat]], WARM)
        model.generate([shows("b", photo.copy())], [[0]], WARM)
        model.generate([shows("c", other)], [[0]], WARM)
    assert encoded == [(300, 200), (300, 200)]
    sent = [body["messages"][0]["content"][0]["image_url"]["url"] for body in server.requests]
    assert sent == [data_url(photo)] * 9 + [data_url(other)]


def test_tokens_that_end_an_answer_are_not_counted_where_the_server_counts_them() -> None:
    # Ten tokens: two answers that ended, one that was cut off; so eight of text, one for each letter.
    three = [Completion("abc", "stop", 3), Completion("abcd", "stop", 5), Completion("a", "length", 2)]
    assert [one.num_tokens for one in without_ends(three)] == [3, 4, 1]


def test_a_server_of_this_machine_is_asked_past_every_proxy(monkeypatch) -> None:
    with ChatServer(ANSWER) as server:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # nobody listens there
        [[answer]] = EndpointModel(server.endpoint(num_attempts=1)).generate([PROMPT], [[0]], WARM)
    assert answer.text == "The answer is \\boxed{0}."


def test_a_token_that_may_not_be_drawn_is_made_impossible() -> None:
    with ChatServer(ANSWER) as server:
        EndpointModel(server.endpoint(), never_drawn=(6, 7)).generate([PROMPT], [[0]], WARM)
        EndpointModel(server.endpoint()).generate([PROMPT], [[0]], WARM)
    assert [body.get("logit_bias") for body in server.requests] == [{"6": -100, "7": -100}, None]


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("seed", "Unsupported parameter: 'seed' is not supported with this model."),
        ("top_p", "temperature and top_p cannot both be specified for this model."),
        ("n", "Unknown field 'n'."),
        ("n", "n: must be exactly 1"),
        ("n", "Multiple candidates is not enabled for this model"),
        ("max_tokens", "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."),
    ],
)
@pytest.mark.parametrize("status", [400, 422])
def test_a_parameter_that_is_refused_is_left_out_and_that_is_remembered(parameter, message, status) -> None:
    def reply(body):
        return refusal(status, message) if parameter in body else ANSWER

    with ChatServer(answer=reply) as server:
        model = EndpointModel(server.endpoint())
        for _ in range(3):
            model.generate([PROMPT], [[0, 1]], WARM)
    assert [parameter in body for body in server.requests] == [True, False, False, False]
    if parameter == "max_tokens":
        assert server.requests[-1]["max_completion_tokens"] == 8


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        (WARM, "'temperature' does not support 1.0 with this model"),
        (Sampling(8, 1.0, top_p=0.9), "top_p is not supported"),
    ],
)
def test_what_would_change_the_experiment_is_never_left_out(sampling, message) -> None:
    with ChatServer(refusal(400, message)) as server, pytest.raises(EndpointError, match="status 400"):
        EndpointModel(server.endpoint()).generate([PROMPT], [[0]], sampling)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "reply",
    [
        completion(None, finish="content_filter"),
        refusal(400, "The response was filtered", code="content_filter"),
        refusal(400, "Your request was rejected by our safety system.", code="content_policy_violation"),
    ],
    ids=["null", "refused", "policy"],
)
def test_a_blocked_answer_is_an_empty_one_and_no_error(reply, store, asked) -> None:
    with ChatServer(reply) as server:
        key = asked(server, repeats=1)
    [sample] = store.samples(key)
    assert (sample.response.text, sample.verdict.state) == ("", "unparseable")


def test_an_answer_that_was_cut_is_truncated() -> None:
    with ChatServer(completion("so far", finish="length")) as server:
        [[answer]] = EndpointModel(server.endpoint()).generate([PROMPT], [[0]], WARM)
    assert answer.truncated


def test_the_wait_doubles_and_a_server_that_asks_for_time_gets_it_up_to_a_minute() -> None:
    waits: list[float] = []
    broken, busy = refusal(500, "broken"), (429, {"Retry-After": "7"}, b"")
    with ChatServer(broken, broken, busy, (503, {"Retry-After": "9999"}, b""), ANSWER) as server:
        endpoint = server.endpoint(num_attempts=5, first_wait=0.5, sleep=waits.append)
        EndpointModel(endpoint).generate([PROMPT], [[0]], WARM)
    assert waits == [0.5, 1.0, 7.0, 60.0]


def test_a_client_that_is_closed_waits_for_nothing_any_more() -> None:
    started = time.monotonic()
    with ChatServer((503, {"Retry-After": "60"}, b"")) as server:
        client = ChatClient(server.endpoint())
        threading.Timer(0.3, client.close).start()
        with pytest.raises((EndpointError, RuntimeError)):
            client.retried(lambda: client.complete([], temperature=0, max_tokens=1))
    assert time.monotonic() - started < 10


def test_a_name_that_is_not_served_is_answered_with_those_that_are() -> None:
    with ChatServer(refusal(404, "no such model")) as server:
        server.expect_request("/v1/models").respond_with_json({"data": [{"id": "mini"}, {"id": "maxi"}]})
        with pytest.raises(EndpointError, match="mini, maxi"):
            EndpointModel(server.endpoint()).generate([PROMPT], [[0]], WARM)


@pytest.mark.parametrize(
    ("reply", "why", "then"),
    [
        (refusal(400, "At most 1 image(s) may be provided in one prompt."), "1 image", "what the server allows"),
        ((307, {"Location": "http://there/v1"}, b""), "It sends to http://there/v1.", "check the address"),
    ],
)
def test_a_refusal_names_the_problem_where_the_server_sends_to_and_what_to_do(reply, why, then) -> None:
    with ChatServer(reply) as server, pytest.raises(EndpointError, match="refuses problem a") as error:
        EndpointModel(server.endpoint()).generate([PROMPT], [[0]], WARM)
    assert why in error.value.why
    assert then in error.value.next_step


OPENAI = "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens."
VLLM = (
    "'max_tokens' or 'max_completion_tokens' is too large: 48. This model's maximum context length is 64 tokens and "
    "your request has 60 input tokens (48 > 64 - 60)."
)


@pytest.mark.parametrize(
    "refused",
    [
        refusal(400, OPENAI, code="context_length_exceeded"),
        refusal(400, "Your input is larger than this model takes.", code="context_length_exceeded"),
        (400, {}, json.dumps({"object": "error", "message": VLLM, "type": "BadRequestError", "code": 400}).encode()),
        refusal(400, "The decoder prompt (length 70) is longer than the maximum model length of 64."),
        refusal(400, "The image length and width do not meet the model restrictions.", code="invalid_parameter_error"),
        (413, {}, b""),
    ],
    ids=["openai", "openai's code alone", "vllm", "vllm's pictures", "a picture too small", "too large"],
)
def test_a_prompt_that_the_server_does_not_take_is_skipped_and_named_and_the_others_are_answered(
    refused, store, asked
) -> None:
    with ChatServer(answer=lambda body: refused if re.search(r"Question 7\b", str(body)) else ANSWER) as server:
        key = asked(server, num_problems=100, repeats=2)
    assert (len(store.samples(key)), store.cell(key).state) == (198, "done")
    [(name, reason)] = store.skipped(key).items()
    assert (name, "the server refuses it" in reason) == ("7", True)
    assert all("max_tokens" in body for body in server.requests), "the limit on tokens is no word that it does not know"


def test_more_than_one_percent_of_refused_prompts_fail_the_cell_and_a_longer_context_mends_it(store, asked) -> None:
    with ChatServer(refusal(400, OPENAI)) as server, pytest.raises(InvalidFileError, match="1 of 3 rows") as error:
        asked(server, num_problems=3, num_parallel=1)
    assert "128000 tokens" in str(error.value)
    with ChatServer(ANSWER) as server:
        key = asked(server)
    assert (store.cell(key).state, store.skipped(key)) == ("done", {})


@pytest.mark.parametrize("address", ["localhost:8000/v1", "/v1", "http://", "ftp://localhost/v1"])
def test_what_is_no_address_says_what_one_is(address) -> None:
    with pytest.raises(EndpointError, match="http://localhost:8000/v1"):
        EndpointModel(EndpointConfig(address, "mini")).generate([PROMPT], [[0]], WARM)


def test_the_key_comes_from_the_variable_that_was_named(monkeypatch) -> None:
    monkeypatch.setenv("OTHER_KEY", "secret")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with ChatServer(ANSWER) as server:
        EndpointModel(server.endpoint(api_key_variable="OTHER_KEY")).generate([PROMPT], [[0]], WARM)
        EndpointModel(server.endpoint()).generate([PROMPT], [[0]], WARM)
    assert [request.headers.get("Authorization") for request, _ in server.log] == ["Bearer secret", None]


def test_one_request_tells_a_busy_server_from_one_that_refuses() -> None:
    with (
        ChatServer(refusal(500, "busy"), refusal(401, "no key")) as server,
        ChatClient(server.endpoint()) as client,
    ):
        with pytest.raises(NoReplyError, match="status 500"):
            client.complete([], temperature=0, max_tokens=1)
        with pytest.raises(EndpointError, match="OPENAI_API_KEY"):
            client.complete([], temperature=0, max_tokens=1)


# Whole runs -------------------------------------------------------------------------------------------------------


def test_no_more_requests_are_under_way_than_allowed(asked) -> None:
    under_way, most, lock = 0, 0, threading.Lock()

    class Slow(EndpointModel):
        def generate(self, *args):
            nonlocal under_way, most
            with lock:
                under_way += 1
                most = max(most, under_way)
            try:
                return super().generate(*args)
            finally:
                with lock:
                    under_way -= 1

    with ChatServer(ANSWER) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr("atrl_bench.evaluation.cell.EndpointModel", Slow)
        asked(server, 12, num_parallel=3)
    assert 2 <= most <= 3


def test_what_arrived_before_a_server_went_down_is_kept_and_only_the_rest_is_asked_again(store, asked) -> None:
    replies = [ANSWER] * 7 + [refusal(500, "down")]
    with ChatServer(*replies) as server, pytest.raises(EndpointError, match="did not answer after 3 attempts"):
        asked(server, 20, repeats=4, num_parallel=2)
    (cell,) = store.cells()
    assert (cell.state, cell.num_responses, cell.num_graded) == ("pending", 28, 28)
    assert {sample.verdict.state for sample in store.samples(cell.key)} == {"correct"}
    answered = {response.problem_id for response in store.responses(cell.key).values()}

    with ChatServer(ANSWER) as server:
        key = asked(server, repeats=4)
    assert key == cell.key  # another address is not another model
    assert asked_about(server) == {str(place): 4 for place in range(20) if str(place) not in answered}
    assert (store.cell(key).state, store.cell(key).num_graded) == ("done", 80)


def test_what_is_on_its_way_when_too_many_are_refused_is_kept(store, asked) -> None:
    def reply(body):
        if re.search(r"Question 0\b", str(body)):
            return refusal(400, "The picture is too small.")
        time.sleep(0.2)
        return ANSWER

    with ChatServer(answer=reply) as server, pytest.raises(InvalidFileError, match="1 of 3 rows"):
        asked(server, 3, repeats=1, num_parallel=3)
    assert store.cells()[0].num_responses == 2


def test_answers_of_one_problem_survive_on_their_own(store, asked) -> None:
    single = completion("\\boxed{0}")
    with ChatServer(single, single, refusal(500, "")) as server, pytest.raises(EndpointError):
        asked(server, repeats=5)
    (cell,) = store.cells()
    # The first alone, which tells that the server gives one at a time; of the others, asked for together, one.
    first, other = sorted(repeat for _, repeat in store.responses(cell.key))
    assert (first, other in (1, 2, 3, 4)) == (0, True)
    with ChatServer(ANSWER) as server:
        asked(server, repeats=5)
    assert asked_about(server) == {"0": 3}
