# Sourced by demo.sh and test.sh: makes .venv with the pinned packages, once per state of the pins.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python_of_311() {
    local candidate
    for candidate in "${PYTHON:-}" python3.11 python3 python3.12 python3.13; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null &&
            { echo "$candidate"; return; }
    done
    echo "refork needs Python 3.11 or newer with venv; set PYTHON=/path/to/python3.11" >&2
    return 2
}

make_venv() {
    local extras="$1" stamp want python
    stamp=".venv/.refork-stamp"
    want="$(cat pyproject.toml constraints.txt | sha256sum | cut -d' ' -f1) $extras $PWD"
    [ -f "$stamp" ] && grep -qxF "$want" "$stamp" && return
    python="$(python_of_311)"
    echo "setting up .venv with $("$python" --version) (first time: a few minutes)"
    [ -x .venv/bin/python ] || "$python" -m venv .venv
    .venv/bin/python -m pip install --quiet --constraint constraints.txt --editable ".$extras"
    echo "$want" >>"$stamp"
}

export OMP_NUM_THREADS=1 RAY_USAGE_STATS_ENABLED=0
