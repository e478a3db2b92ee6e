# What follows is the same in every script. It keeps notes of the job's starts in the run's folder.
log_info() { echo "engine submit: $*" >&2; }
note() { echo "$*" >>"$notes"; }
finish() {
  note "end $1"
  exit "$1"
}
checkpoint() { cat "$folder/latest" 2>/dev/null || echo none; }

# After three starts from one checkpoint a fourth one would not get further.
finish_if_stuck() {
  [ "$(grep '^start ' "$notes" 2>/dev/null | tail -n 3 | grep -cxF "start $(checkpoint)")" = 3 ] || return 0
  log_info "job $job stops: three starts in a row saved no new checkpoint (newest: $(checkpoint)), so it does not go back into the queue; exit code of the last one: $1"
  finish "$1"
}

# `srun` fails if a node was lost, even if the other ranks have ended the training.
is_completed() {
  [ "$folder/status.json" -nt "$notes" ] && grep -qE '"state": *"(completed|stopped early)' "$folder/status.json"
}

if [ ! -d "$folder" ]; then
  log_info "node $(hostname) has no folder $folder: expected one that all nodes and the submitting host share"
  exit 73
fi
cd "$directory" || finish 73
finish_if_stuck 75
touch "$notes"
check_nodes
prepare || {
  log_info "job $job ends: a line of --setup failed"
  finish 78
}
cd "$directory" || finish 73  # a line of --setup may have left it
note "start $(checkpoint)"
train
code=$?
if [ -n "$elastic" ] && [ $code -ne 0 ] && is_completed; then code=0; fi
case $code in
  # Complete; a mistake in options or data, or numbers that diverge, which would repeat.
  0 | 2 | 65 | 77 | 78 | 79 | 126 | 127) finish $code ;;
  # Stopped by a user, unless the scheduler has sent the SIGTERM for a job of higher priority.
  129 | 130) finish $code ;;
  143) is_preempted || finish $code ;;
esac
finish_if_stuck $code
note "requeue $code"
log_info "job $job goes back into the queue: training ended with exit code $code, newest checkpoint $(checkpoint)"
requeue && exit $code
log_info "job $job could not be put back into the queue; submit this script again to continue"
finish $code
