// Queries and sets the CPUs that threads may run on: no other file calls the kernel for that.
#pragma once

#include <bitset>
#include <string>

namespace base {

constexpr int kMaxCpus = 1024;
// Indexed by the kernel's CPU numbers (hardware threads).
using CpuSet = std::bitset<kMaxCpus>;

std::string cpus_text(const CpuSet& cpus);  // "0-3,8"

// The CPUs of the calling thread; empty if the kernel does not report them.
CpuSet cpus_of_this_thread() noexcept;
// Threads that are started afterwards inherit the set. Returns true if the kernel accepted it.
bool set_cpus_of_this_thread(const CpuSet& cpus) noexcept;

// The CPUs of this process: those of the calling thread before the first BoundThread.
CpuSet cpus_of_process() noexcept;

// The number of CPUs that may be kept busy: all, or fewer if a control group has a CPU quota, which
// is read once. At least 1.
int count_of_cpus() noexcept;
// Returns "the CPU quota 1 of /sys/fs/cgroup/cpu.max" if that is the limit; otherwise "".
std::string cpu_limit_text();

// During the lifetime of this object, the calling thread and those that it starts run only on these
// CPUs; afterwards on the previous ones. Must be destroyed in the thread that created it.
class BoundThread {
 public:
  explicit BoundThread(const CpuSet& cpus) noexcept;  // empty: no effect
  ~BoundThread();
  BoundThread(const BoundThread&) = delete;
  BoundThread& operator=(const BoundThread&) = delete;

  bool done() const { return done_; }  // true if the kernel accepted the set, or the set is empty

 private:
  friend class UnboundMoment;
  const CpuSet before_;
  BoundThread* const outer_;
  bool done_ = true;
};

// During its lifetime, the inner one of two BoundThreads of the calling thread is suspended: for
// starting threads that help this one, and should not compete for its exclusive CPU.
class UnboundMoment {
 public:
  UnboundMoment() noexcept;
  ~UnboundMoment();
  UnboundMoment(const UnboundMoment&) = delete;
  UnboundMoment& operator=(const UnboundMoment&) = delete;

 private:
  CpuSet bound_;  // empty: nothing to restore
};

}  // namespace base
