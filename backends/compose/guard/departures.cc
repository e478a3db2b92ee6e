// Implements the limits that departed ranks set to the calls of communicators.
#include "backends/compose/guard/departures.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/base/digests/digest.h"

namespace backends {
namespace {

constexpr std::size_t kEntryBytes = sizeof(std::uint64_t) + sizeof(std::uint32_t);

}  // namespace

std::string to_bytes(const CallCounts& counts) {
  std::string bytes;
  for (const auto& [name, count] : counts) {
    bytes.append(reinterpret_cast<const char*>(&name), sizeof name);
    bytes.append(reinterpret_cast<const char*>(&count), sizeof count);
  }
  return bytes;
}

CallCounts call_counts(std::string_view bytes) {
  CallCounts counts;
  for (; bytes.size() >= kEntryBytes; bytes.remove_prefix(kEntryBytes)) {
    std::uint64_t name = 0;
    std::uint32_t count = 0;
    std::memcpy(&name, bytes.data(), sizeof name);
    std::memcpy(&count, bytes.data() + sizeof name, sizeof count);
    counts[name] = count;
  }
  return counts;
}

std::string Departures::Calls::why(std::uint32_t number) const {
  const std::lock_guard lock(mutex_);
  return who_ + " has left the group before call " + std::to_string(number) +
         " of this communicator";
}

std::shared_ptr<Departures::Calls> Departures::add(std::string_view name, std::vector<int> members,
                                                   Abort abort) {
  auto calls = std::make_shared<Calls>();
  calls->name_ = base::short_digest_of(name);
  calls->members_ = std::move(members);
  calls->abort_ = std::move(abort);
  const std::lock_guard lock(mutex_);
  for (const auto& [rank, departed] : departed_) limit(*calls, rank, departed);
  calls_.push_back(calls);
  return calls;
}

void Departures::remove(const std::shared_ptr<Calls>& calls) noexcept {
  const std::lock_guard lock(mutex_);
  removed_[calls->name_] = calls->last_.load();
  std::erase(calls_, calls);
}

CallCounts Departures::counts() const {
  const std::lock_guard lock(mutex_);
  CallCounts counts = removed_;
  for (const auto& calls : calls_) counts[calls->name_] = calls->last_.load();
  return counts;
}

void Departures::left(int rank, const std::string& who, const CallCounts& counts) {
  const std::lock_guard lock(mutex_);
  const Departed& departed = departed_[rank] = {who, counts};
  for (const auto& calls : calls_) limit(*calls, rank, departed);
}

void Departures::limit(Calls& calls, int rank, const Departed& departed) {
  if (std::ranges::find(calls.members_, rank) == calls.members_.end()) return;
  const auto found = departed.counts.find(calls.name_);
  const std::uint32_t made = found == departed.counts.end() ? 0 : found->second;
  {
    const std::lock_guard lock(calls.mutex_);
    if (calls.limited_.load() && static_cast<std::int32_t>(made - calls.limit_.load()) >= 0) return;
    calls.who_ = departed.who;
    calls.limit_.store(made, std::memory_order_relaxed);
    calls.limited_.store(true, std::memory_order_seq_cst);
  }
  // A call that begins from now on sees the limit itself.
  const std::uint32_t last = calls.last_.load(std::memory_order_seq_cst);
  if (calls.is_late(last)) calls.abort_(calls.why(last));
}

}  // namespace backends
