# A SLURM of three nodes on this machine, for scripts of this folder. Sourced after cluster_lib.sh.
# Everything runs in namespaces of its own (network, processes, mounts, host name) and in one temporary folder: what it starts ends
# with it, no port of this machine is used, no file outside the folder is written.

# enter_cluster SCRIPT ENGINE: runs SCRIPT again as `SCRIPT --inside ENGINE FOLDER` in the namespaces, and exits as it does.
enter_cluster() {
  local script=$1 engine
  engine=$(readlink -f "${2:?usage: $(basename "$1") ENGINE}")
  need_root
  need_tools slurmctld slurmd srun sbatch scontrol munged ip unshare
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  chmod 755 "$folder"
  unshare --net --uts --mount --pid --fork --mount-proc --kill-child "$script" --inside "$engine" "$folder"
  exit
}

daemons=()  # munge, the controller, the nodes
finish() {
  local status=$?
  [ "$status" -eq 0 ] || tail -n 15 "$folder"/*.log >&2 || true
  # In reverse order: the nodes, the controller, munge. What is still running then ends with the namespace.
  for ((i = ${#daemons[@]} - 1; i >= 0; --i)); do
    kill "${daemons[i]}" 2>/dev/null || true
  done
  for ((i = 0; i < 50; ++i)); do
    kill -0 "${daemons[@]}" 2>/dev/null || break
    sleep 0.1
  done
  exit "$status"
}

# Starts it in $folder; finish() ends it.
start_cluster() {
  trap finish EXIT
  hostname box
  ip link set lo up
  cat /etc/hosts >"$folder/hosts"
  for i in 1 2 3; do
    ip address add "10.77.0.$i/32" dev lo
    echo "10.77.0.$i node$i" >>"$folder/hosts"
  done
  ip address add 10.77.0.10/32 dev lo
  echo "10.77.0.10 box" >>"$folder/hosts"
  mount --bind "$folder/hosts" /etc/hosts
  mkdir -m 755 "$folder/munge" "$folder/state" "$folder"/spool.node{1,2,3} "$folder/home"
  dd if=/dev/urandom of="$folder/munge/key" bs=128 count=1 status=none
  chmod 600 "$folder/munge/key"
  munged --foreground --key-file="$folder/munge/key" --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
    --log-file="$folder/munge.log" --seed-file="$folder/munge/seed" --num-threads=2 >"$folder/munged.log" 2>&1 &
  daemons+=($!)
  cat >"$folder/slurm.conf" <<END
ClusterName=engine
SlurmctldHost=box(10.77.0.10)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool.%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.%n.log
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=2
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
$(for i in 1 2 3; do echo "NodeName=node$i NodeHostname=box NodeAddr=10.77.0.$i Port=$((7000 + i)) CPUs=4 Feature=a100"; done)
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=test Nodes=node[1-3] Default=YES OverSubscribe=FORCE:4 State=UP
PartitionName=spare Nodes=node[1-3] GraceTime=60 State=UP
PartitionName=urgent Nodes=node[1-3] PriorityTier=10 PreemptMode=OFF State=UP
END
  export SLURM_CONF=$folder/slurm.conf
  wait_for 5 "munge's socket" test -S "$folder/munge/socket"
  slurmctld -D >"$folder/slurmctld.out.log" 2>&1 &
  daemons+=($!)
  for i in 1 2 3; do
    slurmd -D -N "node$i" >"$folder/slurmd.node$i.out.log" 2>&1 &
    daemons+=($!)
  done
  wait_for 20 "three idle nodes" three_idle_nodes
}
three_idle_nodes() { [ "$(sinfo --noheader --format=%D --states=idle 2>/dev/null)" = 3 ]; }
