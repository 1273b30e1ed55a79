#!/usr/bin/env bash
# From nothing to a trained policy: sets up .venv, builds the tasks, trains with CRR, judges on packages never trained on.
# Arguments go to `refork train`, e.g. --seed 1.
source "$(dirname "$0")/setup.sh"
make_venv ""
refork=.venv/bin/refork

"$refork" tasks build
"$refork" train repair_small --name demo "$@"
run="$(ls -d runs/demo-* | sort | tail -n 1)"
"$refork" evaluate "$run"
echo "run folder: $run"
