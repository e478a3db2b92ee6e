# shellcheck shell=bash
# What gpu_run_test.sh and gpu_hour_test.sh play: a program of tests with suites that pass, fail, hang and crash, and NVIDIA's tools.

# play_suites FILE: a program of tests. It notes its process in $PLAYED_PIDS, and fails by name with ENGINE_CUDA_SYNC.
play_suites() {
  cat >"$1" <<'END_OF_PROGRAM'
#!/usr/bin/env bash
for argument; do
  case $argument in
    --gtest_list_tests)
      printf '%s\n  Case\n' PlantedFailure. PlantedHang. PlantedCrash. DensePlayed. AttentionPlayed. Typed/0. 'Typed/1.  # TypeParam = int'
      exit
      ;;
    --gtest_filter=*) suite=${argument#*=} ;;
    --gtest_output=xml:*) xml=${argument#*:} ;;
  esac
done
[ -z "${PLAYED_PIDS:-}" ] || echo "$$ $suite" >>"$PLAYED_PIDS"
case $suite in
  PlantedHang.*) exec sleep 60 ;;
  PlantedCrash.*) kill -SEGV $$ ;;
  PlantedFailure.*)
    [ -z "${ENGINE_CUDA_SYNC:-}" ] || echo "execution of a_kernel: an illegal memory access was encountered"
    [ -z "${xml:-}" ] || printf '<testcase name="Case">\n<failure message="wrong"/>\n</testcase>\n' >"$xml"
    exit 1
    ;;
  *) [ -z "${xml:-}" ] || echo '<testcase name="Case"/>' >"$xml" ;;
esac
END_OF_PROGRAM
  chmod +x "$1"
}

# play_tools FOLDER: nvidia-smi, ncu and compute-sanitizer. The last two run the program that is measured; compute-sanitizer finds
# a race in suites of attention.
play_tools() {
  mkdir -p "$1"
  cat >"$1/nvidia-smi" <<'END_OF_PROGRAM'
#!/usr/bin/env bash
case $* in
  *compute_cap*) echo 9.0 ;;
  *name,driver_version*noheader*) echo "Played GPU, 999.1, 81559 MiB" ;;
  *driver_version*noheader*) echo 999.1 ;;
  *name*noheader*) echo "Played GPU" ;;
  *) echo "a table of one GPU" ;;
esac
END_OF_PROGRAM
  cat >"$1/ncu" <<'END_OF_PROGRAM'
#!/usr/bin/env bash
while [ $# -gt 0 ] && [[ "$1" != */engine ]]; do shift; done
[ $# -gt 0 ] || { echo "==ERROR== no program to profile"; exit 1; }
"$@" >&2 || exit 1
echo '"ID","Kernel Name","Metric Name","Metric Value"'
echo '"0","dense_kernel","Duration","12.5"'
END_OF_PROGRAM
  cat >"$1/compute-sanitizer" <<'END_OF_PROGRAM'
#!/usr/bin/env bash
[ "$1" != --version ] || { echo "Version 9.9"; exit; }
tool=$2 error=1
[ "$1" = --tool ] || { echo "========= no tool"; exit 1; }
while [ $# -gt 0 ] && [[ "$1" != */*_test* ]]; do [ "$1" != --error-exitcode ] || error=$2; shift; done
[ $# -gt 0 ] || { echo "========= no program"; exit 1; }
"$@" || exit $?
case "$tool $*" in
  racecheck*Attention*) echo "========= ERROR: Race reported between Write access and Read access"; exit "$error" ;;
esac
echo "========= ERROR SUMMARY: 0 errors"
END_OF_PROGRAM
  chmod +x "$1"/*
}
