#!/usr/bin/env bash
# Sets everything up and runs the whole test suite. Arguments go to pytest.
source "$(dirname "$0")/setup.sh"
make_venv "[dev]"
mkdir -p .typing && ln -sfn .. .typing/refork
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
source scripts/dockerd.sh
trap stop_dockerd EXIT
private_dockerd
docker_base_image .venv/bin/python
.venv/bin/python -m pytest "$@"
