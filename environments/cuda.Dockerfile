# syntax=docker/dockerfile:1
# Trainings and evaluations on GPUs, sampled and served by vLLM. Never built here: this project had no GPU to try it on.
#   docker build -f environments/cuda.Dockerfile -t atrl-bench:cuda .
#   docker run --rm --gpus all --ipc host --user "$(id -u)" -v "$PWD/runs:/work/runs" -v "$HOME/.cache/huggingface:/cache" \
#       atrl-bench:cuda run-table main_7b --profile paper --yes
# Without root: apptainer build atrl-bench.sif docker-daemon:atrl-bench:cuda
#               apptainer run --nv --bind runs:/work/runs atrl-bench.sif run-table main_7b --profile paper --yes
# Another set of versions that was resolved: --build-arg VERSIONS=cuda-torch-2.11
FROM nvidia/cuda:13.0.2-devel-ubuntu24.04

# The compilers stay: vLLM and Triton build kernels when they start.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-dev python3-venv gcc \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir /work /cache && chmod 777 /work /cache
ENV PATH=/opt/atrl/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 HF_HOME=/cache PYTHONUNBUFFERED=1
ARG VERSIONS=cuda
# A wheel of flash-attn for this Python and torch, by its address; without one torch's own attention is used.
ARG FLASH_ATTN_WHEEL=""
# hadolint ignore=DL3013
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=bind,target=/source,rw \
    python3 -m venv /opt/atrl \
    && pip install --constraint "/source/environments/${VERSIONS}.txt" "/source[vllm,ray,s3,wandb,tensorboard]" \
    && if [ -n "${FLASH_ATTN_WHEEL}" ]; then pip install --no-deps "${FLASH_ATTN_WHEEL}"; fi
ENV HOME=/tmp
USER 1000
WORKDIR /work
ENTRYPOINT ["atrl-bench"]
CMD ["doctor"]
