# syntax=docker/dockerfile:1
# verl with this project's credit in it (docs/other_trainers.md). Never built here: this project had no GPU to try it on.
#   docker build -f environments/verl.Dockerfile -t atrl-bench:verl .
#   docker run --rm --gpus all --ipc host --user "$(id -u)" -v "$PWD:/work" atrl-bench:verl -m verl.trainer.main_ppo ...
FROM nvidia/cuda:12.9.1-devel-ubuntu24.04

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-dev python3-venv gcc \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir /work && chmod 777 /work
ENV PATH=/opt/verl/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=bind,target=/source,rw \
    python3 -m venv /opt/verl \
    && pip install --requirement /source/environments/verl.txt \
    && pip install --no-deps /source
ENV HOME=/tmp
USER 1000
WORKDIR /work
ENTRYPOINT ["python3"]
CMD ["-c", "import verl; print(verl.__version__)"]
