# Shared by the commands in tools/; sourced, not run. A step is a quiet command: its output goes to build/logs, and the end
# of that log is shown only when the command fails.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$root/build/logs"

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# step LOG TEXT COMMAND...: one line, overwritten on a terminal (with ninja's [3/40] during a build).
step() {
  local log=$root/build/logs/$1.log text=$2 start=$SECONDS line status
  shift 2
  set +e # the status is looked at below; the command's own subshell stops at its first error
  if [[ -t 2 ]]; then
    printf '%s ...' "$text" >&2
    (set -e; "$@") 2>&1 </dev/null | tee "$log" | while IFS= read -r line; do
      [[ $line =~ ^\[[0-9]+/[0-9]+\] ]] && printf '\r\033[K%s %s' "$text" "${BASH_REMATCH[0]}" >&2
    done
    status=${PIPESTATUS[0]}
    printf '\r\033[K' >&2
  else
    (set -e; "$@") >"$log" 2>&1 </dev/null
    status=$?
    echo "$text: $((SECONDS - start)) s" >&2
  fi
  set -e
  if ((status != 0)); then
    tail -n 40 "$log" >&2
    echo "$text: stopped with exit status $status; the whole log: $log" >&2
    exit 1
  fi
}

# build PRESET TARGET: configures a new folder; ninja configures an older one again when needed.
build() {
  local preset=$1 target=$2
  if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
  cd "$root"
  [[ -e build/$preset/build.ninja ]] || cmake --preset "$preset"
  export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 # clones share results; only behind CMake's compiler checks, which it breaks
  cmake --build "build/$preset" --parallel "$(nproc)" --target "$target"
}
