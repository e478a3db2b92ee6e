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

# machine_of FILE: for which machines this program is, as `uname -m` names them.
machine_of() { readelf --file-header "$1" | sed -n 's/.*Machine: *//p' | sed 's/.*X86-64/x86_64/; s/AArch64/aarch64/'; }

# cached BUILD NAME: a value of this build's CMakeCache.txt, e.g. the emulator that runs its programs.
cached() { sed -n "s/^$2:[A-Z]*=//p" "$1/CMakeCache.txt"; }

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

# kernel_architectures NVCC: what released programs have kernels for, as CMAKE_CUDA_ARCHITECTURES: machine code for sm_75 to sm_90, for
# sm_120 if nvcc is 12.8 or newer, for sm_60 and sm_70 if it is older than 13, and PTX for all newer ones.
kernel_architectures() {
  local release list='75-real;80-real;90a-real;80-virtual'
  release=$("$1" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
  at_least() { [ "$(printf '%s\n' "$1" "$release" | sort -V | head -n 1)" = "$1" ]; }
  ! at_least 12.8 || list=${list/80-virtual/120-real;80-virtual}
  at_least 13 || list="60-real;70-real;$list"
  echo "$list"
}

cuda_runtime_licence() {
  echo "NVIDIA's CUDA runtime (libcudart_static) is linked in, under attachment A of the CUDA Toolkit's licence:"
  echo "https://docs.nvidia.com/cuda/eula/"
}

# copy_libraries FOLDER LICENCES EXCEPT FILE...: the shared libraries that these programs and libraries load, but for the C
# library's own (a program must not mix two of these) and those whose name EXCEPT matches; and what Debian keeps of their licences
# and of those of the headers that are compiled in.
copy_libraries() {
  local folder=$1 licences=$2 except=$3 file real package found
  local libc='(ld-linux[^/]*|libc|libm|libdl|librt|libpthread|libresolv|libutil|libanl|libnss_[a-z]+)\.so[.0-9]*'
  mkdir -p "$folder" "$licences"
  found=$(ldd "${@:4}")
  while read -r file; do
    real=$(readlink -f "$file")  # packages may say /lib for /usr/lib
    install -m 644 -s "$real" "$folder/$(basename "$file")"
    case $real in "$root"/build/*) continue ;; esac
    package=$(dpkg-query --search "$real" "${real#/usr}" 2>/dev/null | head -n 1 | cut -d: -f1 || true)
    { [ -n "$package" ] && copy_licence "$package" "$licences"; } || echo "no licence found for $file" | tee -a "$licences/MISSING"
  done < <(awk '$2 == "=>" && $3 ~ /^\// { print $3 }' <<<"$found" | sort -u | grep -vE "/($libc${except:+|$except})\$")
  for package in libeigen3-dev libcereal-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev; do
    copy_licence "$package" "$licences" || true  # compiled in
  done
}
copy_licence() {  # PACKAGE LICENCES: its licence, as Debian keeps it
  [ ! -f "/usr/share/doc/$1/copyright" ] || cp -L "/usr/share/doc/$1/copyright" "$2/$1"
  [ -f "$2/$1" ]
}

# pack_wheel TREE INFO FILE: packs the files of TREE, with a list of them in its folder INFO, as a wheel. All have the date
# SOURCE_DATE_EPOCH.
pack_wheel() (
  mkdir -p "$(dirname "$3")"
  wheel="$(cd "$(dirname "$3")" && pwd)/$(basename "$3")"
  cd "$1"
  list=$(find . -type f ! -name RECORD -printf '%P\n' | LC_ALL=C sort)
  while read -r file; do
    echo "$file,sha256=$(openssl dgst -sha256 -binary "$file" | base64 | tr '+/' '-_' | tr -d =),$(stat -c %s "$file")"
  done <<<"$list" >"$2/RECORD"
  echo "$2/RECORD,," >>"$2/RECORD"
  find . -exec touch -d "@$SOURCE_DATE_EPOCH" {} +
  rm -f "$wheel"
  find . -type f -printf '%P\n' | LC_ALL=C sort | TZ=UTC zip -q -X -9 "$wheel" -@
  echo "$wheel: $(du -h --apparent-size "$wheel" | cut -f1)"
)
