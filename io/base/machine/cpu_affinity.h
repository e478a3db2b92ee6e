// Which CPUs threads may run on, and how many: the only place that asks the kernel for it, or
// changes it.
#pragma once

#include <bitset>
#include <string>

namespace base {

constexpr int kMaxCpus = 1024;
// By the numbers that the kernel gives to CPUs (hardware threads).
using CpuSet = std::bitset<kMaxCpus>;

std::string cpus_text(const CpuSet& cpus);  // "0-3,8"

// Of the calling thread; none where the kernel does not tell.
CpuSet cpus_of_this_thread() noexcept;
// A thread that is started afterwards inherits it. Returns whether the kernel has done it.
bool set_cpus_of_this_thread(const CpuSet& cpus) noexcept;

// What this process was given: as above, but as it was before the first BoundThread.
CpuSet cpus_of_process() noexcept;

// How many of them may be kept busy: all, or fewer by the CPU quota of a control group, which is
// read once. At least 1.
int count_of_cpus() noexcept;
// "the CPU quota 1 of /sys/fs/cgroup/cpu.max" where that is what limits them; else "".
std::string cpu_limit_text();

// The calling thread, and those that it starts, run on these CPUs alone while the object lives;
// afterwards where they could before. Ends in the thread that made it.
class BoundThread {
 public:
  explicit BoundThread(const CpuSet& cpus) noexcept;  // empty: nothing happens
  ~BoundThread();
  BoundThread(const BoundThread&) = delete;
  BoundThread& operator=(const BoundThread&) = delete;

  bool done() const { return done_; }  // by the kernel; true for an empty set

 private:
  friend class UnboundMoment;
  const CpuSet before_;
  BoundThread* const outer_;
  bool done_ = true;
};

// While it lives, of two BoundThreads of the calling thread the inner one does not hold: for the
// start of threads that help this one, and shall not crowd on the CPU that it has to itself.
class UnboundMoment {
 public:
  UnboundMoment() noexcept;
  ~UnboundMoment();
  UnboundMoment(const UnboundMoment&) = delete;
  UnboundMoment& operator=(const UnboundMoment&) = delete;

 private:
  CpuSet bound_;  // empty: nothing to go back to
};

}  // namespace base
