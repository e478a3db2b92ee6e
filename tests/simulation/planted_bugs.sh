#!/usr/bin/env bash
# Plants known faults in a copy of the state machines of the store and of elastic membership, one at
# a time, and expects the simulation to find each of them. They are in planted_bugs/*.txt.
#
# Usage: tests/simulation/planted_bugs.sh [SEEDS [NAME]]     only faults whose name contains NAME
# Needs the packages of tools/scripts/install_dependencies.sh --tests. Takes a few minutes: of each
# fault one source is compiled, and the simulation ends with the first history that shows it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export seeds=${1:-20000} only=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export work
protocol=backends/store/protocol membership=backends/membership simulation=tests/simulation
sources=("$protocol"/*.cc "$membership"/{roster,paxos,membership_message,membership_machine,membership_candidate}.cc
  backends/{secret,open_files}.cc backends/secure/record_cipher.cc io/base/digests/digest.cc io/base/text/escape_text.cc "$simulation"/*.cc)

# What is not found. They are tried and shown; only others that are missed are a failure.
unfound=''

# With the standard headers read once.
printf '#include <%s>\n' algorithm chrono cstdint cstdio functional map memory optional set string utility vector >"$work/std.h"
g++ -std=c++20 -O2 -w -x c++-header "$work/std.h" -o "$work/std.h.gch"
compile() {  # FILE OBJECT
  g++ -std=c++20 -O2 -w -include "$work/std.h" -I. -DENGINE_SIMULATED_HISTORIES="$seeds" -c "$1" -o "$2"
}
# What is quick comes first.
simulate() {  # PROGRAM KIND
  local tests by_hand='*ByHand.*' histories='*NobodyHangs*:*LoseNothing*:*AWorldOf1000*:*ADeathIn*'
  [ "$2" = store ] || by_hand='Proposer.*' histories='*TheJobGoesOn*:*AProcessMayDie*'
  for tests in "$by_hand" "$histories"; do
    ENGINE_SIMULATION_FAILURES=1 timeout 600 "$1" --gtest_filter="$tests" --gtest_fail_fast || return
  done
}
link() { g++ -o "$@" -lgtest -lgtest_main -lsodium -lxxhash -pthread; }

# One fault: a folder with its kind, its name (what), the file's name, and the planted file.
try() {
  local folder=$1 kind what file object others
  kind=$(<"$folder/kind") what=$(<"$folder/what") file=$(<"$folder/file")
  object=$(basename "$file" .cc).o
  mapfile -t others < <(find "$work/objects" -name '*.o' ! -name "$object")
  if [ ! -s "$folder/planted.cc" ]; then
    echo "broken: $what: changes nothing in $file"
  elif ! { compile "$folder/planted.cc" "$folder/planted.o" && link "$folder/run" "$folder/planted.o" "${others[@]}"; } 2>"$folder/log"; then
    echo "broken: $what: does not compile: $(grep -m 1 error "$folder/log")"
  elif simulate "$folder/run" "$kind" >"$folder/log" 2>&1; then
    echo "missed: $what"
  elif [ $? -eq 124 ]; then
    echo "broken: $what: no end after ten minutes"
  else
    echo "found: $what ($(grep -m 1 -oE '^seed [0-9]+|FAILED  . [A-Za-z]+[.][A-Za-z0-9]+' "$folder/log" || echo 'by its end'))"
  fi
  rm -rf "$folder"
}
export -f compile simulate link try

# From a list of faults a folder for each of those that are asked for.
plant() {  # KIND LIST
  perl -e '
    my ($kind, $list) = @ARGV;
    local $/;
    open(my $in, "<", $list) or die "$list: $!\n";
    my $number = 0;
    for my $fault (split /^= /m, <$in>) {
      my ($file, $what, $edits) = $fault =~ /\A(\S+\.cc): ([^\n]+)\n(.*)\z/s or next;
      next if index($what, $ENV{only}) < 0;
      my $folder = sprintf "%s/plants/%s-%04d", $ENV{work}, $kind, ++$number;
      mkdir $folder or die "$folder: $!\n";
      open(my $source, "<", $file) or die "$file: $!\n";
      my $text = <$source>;
      while ($edits =~ /((?:^-[^\n]*\n)+)((?:^\+[^\n]*\n)*)/mg) {
        my ($old, $new) = map { s/^[-+]//mgr =~ s/\n\z//r } $1, $2;
        my $at = index($text, $old);
        if ($at < 0) { $text = ""; last }
        substr($text, $at, length $old) = $new;
      }
      for (["kind", $kind], ["what", $what], ["file", $file], ["planted.cc", $text]) {
        open(my $out, ">", "$folder/$_->[0]") or die "$folder: $!\n";
        print $out $_->[1];
      }
    }' "$@"
}

# With twice as many processes as cores those that wait for the disk cost no time.
parallel() { xargs -0 -P "${ENGINE_PLANT_JOBS:-$((2 * $(nproc)))}" "$@"; }
mkdir "$work/objects" "$work/plants"
printf '%s\0' "${sources[@]}" | parallel -n 1 bash -c 'compile "$1" "$work/objects/$(basename "$1" .cc).o"' _
link "$work/sound" "$work"/objects/*.o
for kind in store elastic; do
  if ! ENGINE_SIMULATION_SEEDS=$((seeds / 10 + 1)) simulate "$work/sound" "$kind" >"$work/log" 2>&1; then
    cat "$work/log"
    echo "planted_bugs.sh: the simulation fails without a planted fault" >&2
    exit 1
  fi
  plant "$kind" "$simulation/planted_bugs/$kind.txt"
done

planted=$(find "$work/plants" -mindepth 1 -maxdepth 1 | wc -l)
find "$work/plants" -mindepth 1 -maxdepth 1 -print0 | sort -z | parallel -n 1 bash -c 'try "$1"' _ | tee "$work/results"
count() { grep -c "^$1" "$work/results" || true; }
echo "$(count found) of $planted found, $(count missed) missed, $(count broken) broken"
sed -n 's/^missed: //p' "$work/results" | grep -vxF "$unfound" >"$work/new" || true
[ "$(count broken)" -eq 0 ] && [ ! -s "$work/new" ]
