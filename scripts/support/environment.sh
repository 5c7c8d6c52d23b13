# The virtual environment that the scripts work in. Sourced, not run; needs bash and nothing else.
#
# NAIAD_VENV  the environment's folder (default: .venv in the repository)
# PYTHON      the Python that makes it (default: the first of python3.11, 3.12, 3.13, python3 that is new enough)

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
VENV="${NAIAD_VENV:-$ROOT/.venv}"
VENV_PYTHON="$VENV/bin/python"
EXIT_SETUP=3

say() { printf '%s\n' "$*"; }
fail() { printf '%s\n' "$*" >&2; exit "$EXIT_SETUP"; }

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3.13 python3 python; do
        if is_new_enough "$candidate"; then
            say "$candidate"
            return
        fi
        [ -n "${PYTHON:-}" ] && break
    done
    fail "Naiad needs Python 3.11 or newer. Found: $("${PYTHON:-python3}" --version 2>&1 | head -1 || true).
Install one (Debian: apt-get install python3 python3-venv; macOS: brew install python), or name it: PYTHON=/path/to/python3.12 $0"
}

make_venv() {
    [ -x "$VENV_PYTHON" ] && is_new_enough "$VENV_PYTHON" && return
    local python
    python="$(find_python)" || exit "$EXIT_SETUP"
    say "making $VENV with $("$python" --version)"
    "$python" -m venv "$VENV" >/dev/null 2>&1 || make_venv_with_own_pip "$python"
}

# Debian's Python comes without ensurepip unless python3-venv is installed; an installed pip can stand in for it.
make_venv_with_own_pip() {
    "$1" -m venv --without-pip "$VENV" \
        || fail "$1 could not make a virtual environment in $VENV. On Debian: apt-get install python3-venv"
    "$1" -m pip --version >/dev/null 2>&1 \
        || fail "$1 has neither ensurepip nor pip. On Debian: apt-get install python3-venv"
    "$1" -m pip --python "$VENV_PYTHON" install --quiet --disable-pip-version-check pip || explain_pip_failure pip
}

run_pip() { "$VENV_PYTHON" -m pip --disable-pip-version-check "$@"; }

explain_pip_failure() {
    fail "pip could not install: $*
pip's own words are above. Without a network, point pip at an index or a folder of wheels it can reach (PIP_INDEX_URL,
PIP_FIND_LINKS, PIP_PROXY); what was installed so far is kept, and the next run goes on from there."
}

# install_requirements NAME...: this checkout (editable) and what the named extras and groups of pyproject.toml ask for.
install_requirements() {
    local missing
    missing="$("$VENV_PYTHON" "$ROOT/scripts/support/requirements.py" "$@")" || exit "$EXIT_SETUP"
    [ -z "$missing" ] && return
    say "installing into $VENV: $(say "$missing" | tr '\n' ' ')"
    local wanted=()
    while IFS= read -r requirement; do
        if [ "$requirement" = naiad ]; then wanted+=(--editable "$ROOT"); else wanted+=("$requirement"); fi
    done <<<"$missing"
    run_pip install --quiet "${wanted[@]}" || explain_pip_failure "$(say "$missing" | tr '\n' ' ')"
}
