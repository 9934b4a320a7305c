# syntax=docker/dockerfile:1
# The mini profile, reports and grading on a machine without a GPU.
#   docker build -f environments/cpu.Dockerfile -t atrl-bench:cpu .
#   docker run --rm --user "$(id -u)" -v "$PWD/runs:/work/runs" atrl-bench:cpu run-table main_7b
FROM python:3.11-slim-bookworm

RUN mkdir /work && chmod 777 /work
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=bind,target=/source,rw \
    pip install --constraint /source/environments/cpu.txt /source
ENV HOME=/tmp
USER 1000
WORKDIR /work
ENTRYPOINT ["atrl-bench"]
CMD ["--help"]
