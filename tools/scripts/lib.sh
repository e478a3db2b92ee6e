# Helpers of the shell scripts of tools/; sourced, not run. Sets $root, the root of the source tree.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

step() { printf '\n==> %s\n' "$*"; }

fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# newest_glibc FILE...: the newest version of the C library whose symbols these programs and libraries ask for, e.g. 2.28.
newest_glibc() {
  readelf --version-info --wide "$@" | grep -oE 'Name: GLIBC_[0-9.]+' | cut -d_ -f2 | sort -uV | tail -n 1
}

# Compile jobs: one a core, but never more than the memory bears (templates need up to 1.5 GiB a job).
build_jobs() {
  local cores gib
  cores=$(nproc)
  gib=$(awk '/^MemAvailable/ { print int($2 / 1572864) }' /proc/meminfo)
  [ "${gib:-1}" -ge 1 ] || gib=1
  [ "$gib" -lt "$cores" ] && echo "$gib" || echo "$cores"
}

# The usage text of a script is the comment block that follows its first line.
usage() { awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0"; }

# Put before what runs programs of the build (also the build itself: it lists each test program's cases).
runner=()

# configure_and_build PRESET TARGETS [CMAKE OPTION...]: into build/PRESET, or into $build_folder; target "all" is everything.
configure_and_build() {
  local preset=$1 log targets folder="${build_folder:-$root/build/$1}"
  read -r -a targets <<<"$2"
  shift 2
  mkdir -p "$folder"
  log="$folder/configure.log"
  step "Configuring build/${folder##*/}"
  if ! (cd "$root" && cmake --preset "$preset" -B "$folder" "$@") >"$log" 2>&1; then
    cat "$log" >&2
    fail "CMake could not configure the build (see above); tools/scripts/install_dependencies.sh --tests installs what it needs"
  fi
  grep '^-- engine:' "$log" || true
  step "Building build/${folder##*/} (${targets[*]})"
  "${runner[@]}" cmake --build "$folder" --target "${targets[@]}" --parallel "$(build_jobs)" || fail "the build in build/${folder##*/} failed"
}
