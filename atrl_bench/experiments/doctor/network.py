"""The hub and the judge, as far as they may be asked."""

from __future__ import annotations

import os
from collections.abc import Iterator

from atrl_bench.experiments.doctor.diagnosis import SECONDS, Check, State
from atrl_bench.grading.judge.judge import JudgeConfig
from atrl_bench.profiles import Profile


def hub(profile: Profile, online: bool) -> Iterator[Check]:
    """Yield whether the hub answers, if it is asked."""
    if not online:
        yield Check("", "ok" if profile.generated_data else "note", "not asked (--online asks it)")
        return
    import httpx
    from huggingface_hub import constants

    url = f"{constants.ENDPOINT}/api/models/{profile.model if '/' in profile.model else 'gpt2'}"
    try:
        answer = httpx.get(url, timeout=SECONDS)
    except httpx.HTTPError as error:
        state: State = "note" if profile.generated_data else "missing"
        yield Check("", state, f"{constants.ENDPOINT} does not answer: {error}", "set HTTPS_PROXY or HF_ENDPOINT")
        return
    if answer.is_success:
        yield Check("", "ok", f"{constants.ENDPOINT} answers")
    else:
        yield Check("", "note", f"{constants.ENDPOINT} answers {answer.status_code} for {url}", "hf auth login")


def judge(judge: JudgeConfig | None) -> Iterator[Check]:
    """Yield whether the judge serves its model."""
    if judge is None:
        yield Check("", "ok", "none given: the rule grader alone decides, and reports say so")
        return
    import httpx

    base = judge.base_url.rstrip("/").removesuffix("/chat/completions")
    key = os.environ.get(judge.api_key_variable)
    fix = f"start the server, or name another; its key is read from {judge.api_key_variable}"
    try:
        answer = httpx.get(f"{base}/models", timeout=SECONDS, headers={"Authorization": f"Bearer {key}"} if key else {})
        names = [str(item["id"]) for item in answer.raise_for_status().json()["data"]]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        yield Check("", "missing", f"{base} does not list its models: {str(error) or type(error).__name__}", fix)
        return
    if judge.model in ("", *names):
        yield Check("", "ok", f"{base} serves {', '.join(names[:5])}")
    else:
        models = ", ".join(names[:5]) or "nothing"
        yield Check("", "missing", f"{base} serves {models}, not {judge.model}", "correct --judge-model")
