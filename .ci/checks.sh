# Shared by the scripts of this folder: runs checks and sums up over all of them. Sourced.
passed=0 failed=0 skipped=0 table="" reports=""

# what_failed LOG: ctest's tests that failed, also those that passed when run once more, with the end of what each printed;
# of a log without such tests its end.
what_failed() {
  awk 'function told() { if (name != "") { print name; for (i = (n > 24 ? n - 24 : 0); i < n; ++i) print "    " substr(line[i], 1, 300) }
                         name = ""; n = 0 }
       /^ *[0-9]+\/[0-9]+ Test +#/ { told(); if (/\*\*\*/ && !/\*\*\*Skipped/) { name = $0; any = 1 } next }
       /^ +Start +[0-9]+: / { told(); next }
       /^$|^\[[ =-]*(RUN|OK|PASSED|----------|==========)/ { next }
       name != "" { line[n++] = $0; next }
       { last[NR % 12] = $0 }
       END { told(); if (!any) for (i = NR + 1; i <= NR + 12; ++i) if (i % 12 in last) print "    " last[i % 12] }' "$1"
}

# check NAME COMMAND...: runs it and adds its closing line to the sums; without such a line it counts as one test.
check() {
  local name=$1 status line counts begin=$SECONDS log
  shift
  log=$(mktemp)
  printf '\n######## %s: %s\n' "$name" "$*"
  "$@" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  line=$(tail -n 1 "$log" | grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$')
  if [ -n "$line" ]; then
    read -r -a counts <<<"${line//[^0-9 ]/}"
  elif [ "$status" -eq 0 ]; then
    counts=(1 0 0)
  else
    counts=(0 1 0)
  fi
  if [ "$status" -ne 0 ] && [ "${counts[1]}" -eq 0 ]; then
    counts[1]=1
  fi
  [ "${counts[1]}" -eq 0 ] || reports+=$(printf '\n######## What failed: %s\n' "$name"; what_failed "$log")$'\n'
  rm -f "$log"
  passed=$((passed + counts[0])) failed=$((failed + counts[1])) skipped=$((skipped + counts[2]))
  table+=$(printf '%-30s %5d passed %4d failed %4d skipped %5d s' "$name" "${counts[@]}" $((SECONDS - begin)))$'\n'
}

# build_beside COMMAND...: runs these lines one after the other in the background, with what other processes leave of the
# processors. What they print is lost: the check that needs a build repeats what has failed.
build_beside() {
  # A session of its own: Linux may divide processors among sessions before it looks at priorities.
  setsid bash -c 'echo 19 >/proc/self/autogroup; renice -n 19 $$; for line; do eval "$line"; done' build_beside "$@" >/dev/null 2>&1 &
  builder=$!
  trap 'kill -- -"$builder" 2>/dev/null' EXIT
}

# wait_for_builds: returns when all those lines have ended.
wait_for_builds() {
  local begin=$SECONDS
  wait "$builder"
  table+=$(printf '%-30s %43s %5d s' "waiting for builds" "" $((SECONDS - begin)))$'\n'
}

# The table, what failed, and "N passed, N failed, N skipped" as the last line. Fails if anything did.
sum_up() {
  printf '%s\n%s\n' "$reports" "$table"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ]
}
