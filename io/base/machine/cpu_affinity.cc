// Uses sched_getaffinity() and sched_setaffinity().
#include "io/base/machine/cpu_affinity.h"

#include <sched.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "io/base/machine/control_groups.h"

namespace base {
namespace {

static_assert(kMaxCpus == CPU_SETSIZE);

std::mutex process_mutex;
std::optional<CpuSet> process_cpus;  // guarded; set by the first BoundThread

thread_local BoundThread* innermost = nullptr;

void remember_process() noexcept {
  const std::lock_guard lock(process_mutex);
  if (!process_cpus) process_cpus = cpus_of_this_thread();
}

// Read once: the number of threads does not follow a quota that changes.
const std::optional<CpuQuota>& quota_of_process() noexcept {
  static const std::optional<CpuQuota> quota = cpu_quota();
  return quota;
}

}  // namespace

std::string cpus_text(const CpuSet& cpus) {
  std::string text;
  for (int first = 0; first < kMaxCpus; ++first) {
    if (!cpus[static_cast<std::size_t>(first)]) continue;
    int last = first;
    while (last + 1 < kMaxCpus && cpus[static_cast<std::size_t>(last) + 1]) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (last > first) text.append(1, '-').append(std::to_string(last));
    first = last;
  }
  return text;
}

CpuSet cpus_of_this_thread() noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  CpuSet cpus;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cpus;
  for (std::size_t i = 0; i < cpus.size(); ++i) cpus[i] = CPU_ISSET(i, &allowed);
  return cpus;
}

bool set_cpus_of_this_thread(const CpuSet& cpus) noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  for (std::size_t i = 0; i < cpus.size(); ++i)
    if (cpus[i]) CPU_SET(i, &allowed);
  return sched_setaffinity(0, sizeof allowed, &allowed) == 0;
}

CpuSet cpus_of_process() noexcept {
  const std::lock_guard lock(process_mutex);
  return process_cpus ? *process_cpus : cpus_of_this_thread();
}

int count_of_cpus() noexcept {
  const int all = std::max(1, static_cast<int>(cpus_of_process().count()));
  const std::optional<CpuQuota>& quota = quota_of_process();
  return quota ? std::min(all, quota->cpus) : all;
}

std::string cpu_limit_text() {
  const std::optional<CpuQuota>& quota = quota_of_process();
  if (!quota || quota->cpus >= static_cast<int>(cpus_of_process().count())) return "";
  return "the CPU quota " + std::to_string(quota->cpus) + " of " + quota->file;
}

BoundThread::BoundThread(const CpuSet& cpus) noexcept
    : before_(cpus.none() ? CpuSet{} : cpus_of_this_thread()), outer_(innermost) {
  if (cpus.none()) return;
  remember_process();
  done_ = set_cpus_of_this_thread(cpus);
  innermost = this;
}

BoundThread::~BoundThread() {
  if (before_.none()) return;
  set_cpus_of_this_thread(before_);
  innermost = outer_;
}

UnboundMoment::UnboundMoment() noexcept {
  const BoundThread* const inner = innermost;
  if (inner == nullptr || inner->outer_ == nullptr) return;
  bound_ = cpus_of_this_thread();
  set_cpus_of_this_thread(inner->before_);
}

UnboundMoment::~UnboundMoment() {
  if (bound_.any()) set_cpus_of_this_thread(bound_);
}

}  // namespace base
