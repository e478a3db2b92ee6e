// Implements share_state().
#include "engine/train/saving/shared_state.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/averaging/math/flat_math.h"
#include "engine/averaging/policies/policy_checkpoint.h"
#include "engine/core/error.h"
#include "engine/train/replicas/replica_sync.h"
#include "engine/train/saving/weights.h"
#include "io/base/digests/digest.h"

namespace engine {
namespace {

// The progress of a rank, with the most important criterion first.
struct Standing {
  std::int64_t trained = 0, whole = 0, step = 0, in_sync = 0;
  std::int64_t apart = 0;
  std::uint64_t counters = 0;  // a digest of the counters

  auto rank() const { return std::tie(trained, whole, step, in_sync); }
};

// With --local-steps, ranks differ in the number of their updates, which belongs to the moments of
// their optimizers.
constexpr const char* kUpdates = "optimizer.steps";

std::uint64_t digest_of_counters(const io::Checkpoint& state) {
  std::string text;
  for (const auto& [name, value] : state.counters)
    if (name != kUpdates) text += name + " " + std::to_string(value) + "\n";
  return base::short_digest_of(text);
}

std::vector<Standing> standings(backends::Communicator& communicator, const StateInMemory& own) {
  Standing mine;
  if (own.checkpoint)
    mine = {.trained = 1,
            .whole = own.whole,
            .step = own.checkpoint->global_step,
            .in_sync = own.apart == 0,
            .apart = own.apart,
            .counters = digest_of_counters(*own.checkpoint)};
  std::vector<Standing> all(static_cast<std::size_t>(communicator.world_size()), mine);
  if (all.size() > 1) communicator.all_gather(&mine, sizeof mine, all.data());
  return all;
}

io::Checkpoint sent_by(backends::Communicator& communicator, int source, const StateInMemory& own,
                       const std::string& name) {
  if (communicator.world_size() == 1) return *own.checkpoint;
  std::vector<std::byte> bytes;
  if (communicator.rank() == source) bytes = io::checkpoint_bytes(*own.checkpoint);
  std::uint64_t size = bytes.size();
  communicator.broadcast(&size, sizeof size, source);
  bytes.resize(size);
  broadcast_blocks(communicator, bytes.data(), bytes.size(), source);
  return communicator.rank() == source ? *own.checkpoint : io::parse_checkpoint(bytes, name);
}

// The averaging's memory of this rank alone (error feedback) stays on this rank.
void keep_own_memory(const io::Checkpoint& own, TrainState& state) {
  const HostView view(state.home, Access::kWrite);
  for (const PolicyState& s : state.policy.state())
    // A world of one averages nothing and has no such memory.
    if (s.local && !s.buffer->slots().empty() &&
        own.find(io::Section::kAveraging, s.name + "/" + s.buffer->slots().front().name) != nullptr)
      import_buffer(own.arrays, "the memory of this rank", s.name + "/", io::Section::kAveraging,
                    *s.buffer);
}

// A rank that keeps its optimizer's moments keeps their number of updates.
void keep_own_updates(const io::Checkpoint& own, io::Checkpoint& shared) {
  const std::int64_t updates = find_counter(own.counters, kUpdates, 0);
  for (auto& [name, value] : shared.counters)
    if (name == kUpdates) value = updates;
}

// Returns the buffers that stay in place from one group to the next.
std::vector<const FlatBuffer*> buffers_in_place(const TrainState& state) {
  std::vector<const FlatBuffer*> all{&state.model.parameters.values, &state.model.running,
                                     &state.model.counters};
  for (const Optimizer::State& s : state.optimizer.state()) all.push_back(s.buffer);
  return all;
}

// Sends the buffers from `source` to the ranks that take them; the others discard them. A rank with
// a state of its own replaces it only after the other one has arrived completely.
void send_buffers(backends::Communicator& communicator, int source, bool takes, bool has_own,
                  TrainState& state) {
  constexpr std::size_t kBlock = std::size_t{4} << 20;
  const HostView view(state.home, takes ? Access::kWrite : Access::kRead);
  const bool sends = communicator.rank() == source;
  std::vector<std::byte> passing, staged;
  if (!sends && !takes) passing.resize(kBlock);
  const std::vector<const FlatBuffer*> buffers = buffers_in_place(state);
  std::size_t whole = 0;
  for (const FlatBuffer* buffer : buffers) whole += buffer->bytes();
  if (takes && has_own) staged.resize(whole);
  std::vector<std::uint64_t>
      digests;  // digests of the blocks, on the source and those that take them
  std::size_t before = 0;
  for (const FlatBuffer* buffer : buffers) {
    auto* memory = static_cast<std::byte*>(buffer->data());
    if (takes && has_own) memory = staged.data() + before;
    before += buffer->bytes();
    for (std::size_t at = 0; at < buffer->bytes(); at += kBlock) {
      const std::size_t bytes = std::min(kBlock, buffer->bytes() - at);
      std::byte* block = passing.empty() ? memory + at : passing.data();
      communicator.broadcast(block, bytes, source);
      digests.push_back(passing.empty() ? base::short_digest_of(std::string_view(
                                              reinterpret_cast<const char*>(block), bytes))
                                        : 0);
    }
  }
  std::vector<std::uint64_t> sent = digests;
  communicator.broadcast(sent.data(), sent.size() * sizeof sent.front(), source);
  if (!passing.empty()) return;
  if (sent != digests)
    throw DesyncError("rank " + std::to_string(communicator.rank()) +
                      " did not get the state that rank " + std::to_string(source) + " has sent");
  before = 0;
  for (const FlatBuffer* buffer : buffers) {
    if (!staged.empty() && buffer->bytes() > 0)
      std::memcpy(buffer->data(), staged.data() + before, buffer->bytes());
    before += buffer->bytes();
  }
}

// Computes the sums over ranks of weight * contents of the trained parameters, on all of them, and
// of the optimizer's states if the policy keeps these equal. Replaces them after the last
// collective has succeeded.
void average_replicas(backends::Communicator& communicator, double weight, TrainState& state) {
  const HostView view(state.home, Access::kWrite);
  const ParameterBuffer& parameters = state.model.parameters;
  std::vector<const FlatBuffer*> averaged{&parameters.values};
  if (!state.policy.differences().optimizer_states)
    for (const Optimizer::State& s : state.optimizer.state()) averaged.push_back(s.buffer);
  std::vector<std::vector<std::byte>> means;
  for (const FlatBuffer* buffer : averaged) {
    // Frozen ones are equal.
    const auto count = static_cast<std::size_t>(parameters.trained_elements(*buffer));
    std::vector<std::byte>& mean = means.emplace_back(count * size_of(buffer->dtype()));
    if (count == 0) continue;
    with_element_type(buffer->dtype(), [&]<class T>(T) {
      const std::span<const T> own = buffer->span<T>().first(count);
      std::ranges::transform(own, reinterpret_cast<T*>(mean.data()),
                             [&](T v) { return v * static_cast<T>(weight); });
    });
    communicator.all_reduce(mean.data(), count, buffer->dtype(), backends::ReduceOp::kSum);
  }
  for (std::size_t i = 0; i < averaged.size(); ++i)
    if (!means[i].empty()) std::memcpy(averaged[i]->data(), means[i].data(), means[i].size());
}

}  // namespace

std::optional<io::Checkpoint> share_state(backends::Communicator& communicator,
                                          const StateInMemory& own, TrainState& state) {
  const std::vector<Standing> all = standings(communicator, own);
  const auto furthest = std::ranges::max_element(
      all, [](const Standing& a, const Standing& b) { return a.rank() < b.rank(); });
  if (furthest->trained == 0) return std::nullopt;
  const int source = static_cast<int>(furthest - all.begin());
  const std::string name = "the memory of rank " + std::to_string(source);
  const bool apart = furthest->in_sync == 0;
  // Synchronized replicas with the same progress are equal.
  const auto takes = [&](const Standing& s) {
    if (apart) return s.trained == 0;
    return s.rank() != furthest->rank() || s.counters != furthest->counters;
  };
  const bool anybody_takes = std::ranges::any_of(all, takes);
  io::Checkpoint shared =
      anybody_takes || apart ? sent_by(communicator, source, own, name) : *own.checkpoint;
  shared.world_size = 0;  // state of single ranks is not taken over
  const bool takes_here = takes(all[static_cast<std::size_t>(communicator.rank())]);
  if (anybody_takes)
    send_buffers(communicator, source, takes_here, own.checkpoint.has_value(), state);
  if (!takes_here) keep_own_updates(*own.checkpoint, shared);

  std::int64_t samples = 0;
  for (const Standing& standing : all) samples += standing.apart;
  if (apart && communicator.world_size() > 1)
    average_replicas(communicator, static_cast<double>(own.apart) / static_cast<double>(samples),
                     state);
  restore_beside(shared, name, communicator.rank(), communicator.world_size(), state, {});
  if (own.checkpoint) keep_own_memory(*own.checkpoint, state);
  shared.arrays.clear();
  return shared;
}

}  // namespace engine
