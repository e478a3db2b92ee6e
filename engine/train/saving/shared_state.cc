// share_state().
#include "engine/train/saving/shared_state.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "engine/averaging/sums/flat_math.h"
#include "engine/train/replica_sync.h"
#include "engine/train/saving/weights.h"
#include "io/base/digest.h"

namespace engine {
namespace {

// How far a rank is, in the order of what counts most.
struct Standing {
  std::int64_t trained = 0, whole = 0, step = 0, together = 0;
  std::int64_t apart = 0;
  std::uint64_t counters = 0;  // a digest of them

  auto rank() const { return std::tie(trained, whole, step, together); }
};

std::uint64_t digest_of_counters(const io::Checkpoint& state) {
  std::string text;
  for (const auto& [name, value] : state.counters)
    text += name + " " + std::to_string(value) + "\n";
  return base::short_digest_of(text);
}

// Whether all have the same already.
bool are_equal(const std::vector<Standing>& all) {
  return std::ranges::all_of(all, [&](const Standing& s) {
    return s.rank() == all.front().rank() && s.counters == all.front().counters && s.trained != 0 &&
           s.whole != 0 && s.together != 0;
  });
}

std::vector<Standing> standings(backends::Communicator& communicator, const StateImage& own) {
  Standing mine;
  if (own.state)
    mine = {.trained = 1,
            .whole = own.whole,
            .step = own.state->global_step,
            .together = own.apart == 0,
            .apart = own.apart,
            .counters = digest_of_counters(*own.state)};
  std::vector<Standing> all(static_cast<std::size_t>(communicator.world_size()), mine);
  if (all.size() > 1) communicator.all_gather(&mine, sizeof mine, all.data());
  return all;
}

io::Checkpoint sent_by(backends::Communicator& communicator, int source, const StateImage& own,
                       const std::string& name) {
  if (communicator.world_size() == 1) return *own.state;
  std::vector<std::byte> bytes;
  if (communicator.rank() == source) bytes = io::checkpoint_bytes(*own.state);
  std::uint64_t size = bytes.size();
  communicator.broadcast(&size, sizeof size, source);
  bytes.resize(size);
  broadcast_blocks(communicator, bytes.data(), bytes.size(), source);
  return communicator.rank() == source ? *own.state : io::parse_checkpoint(bytes, name);
}

// What the averaging remembers of this rank alone (error feedback) stays with it.
void keep_own_memory(const io::Checkpoint& own, TrainState& state) {
  const HostView view(state.home, Access::kWrite);
  for (const PolicyState& s : state.policy.state())
    // A world of one averages nothing and remembers nothing.
    if (s.local && !s.buffer->slots().empty() &&
        own.find(io::Section::kAveraging, s.name + "/" + s.buffer->slots().front().name) != nullptr)
      import_buffer(own.arrays, "the memory of this rank", s.name + "/", io::Section::kAveraging,
                    *s.buffer);
}

// The sum over ranks of weight * parameters, on all of them.
void average_parameters(backends::Communicator& communicator, double weight, TrainState& state) {
  const HostView view(state.home, Access::kWrite);
  const FlatBuffer& values = state.model.parameters.values;
  with_element_type(values.dtype(), [&]<class T>(T) {
    for (T& v : values.span<T>()) v *= static_cast<T>(weight);
  });
  communicator.all_reduce(values.data(), static_cast<std::size_t>(values.size()), values.dtype(),
                          backends::ReduceOp::kSum);
}

}  // namespace

std::optional<io::Checkpoint> share_state(backends::Communicator& communicator,
                                          const StateImage& own, TrainState& state) {
  const std::vector<Standing> all = standings(communicator, own);
  const auto furthest = std::ranges::max_element(
      all, [](const Standing& a, const Standing& b) { return a.rank() < b.rank(); });
  if (furthest->trained == 0) return std::nullopt;
  const int source = static_cast<int>(furthest - all.begin());
  const std::string name = "the memory of rank " + std::to_string(source);
  io::Checkpoint shared = are_equal(all) ? *own.state : sent_by(communicator, source, own, name);
  shared.world_size = 0;  // what only single ranks had is nobody's

  std::int64_t samples = 0;
  for (const Standing& standing : all) samples += standing.apart;
  const bool apart = furthest->together == 0;
  if (apart && own.state) shared.arrays = own.state->arrays;
  restore(shared, name, communicator.rank(), communicator.world_size(), state, {});
  if (own.state) keep_own_memory(*own.state, state);
  if (apart && communicator.world_size() > 1)
    average_parameters(communicator, static_cast<double>(own.apart) / static_cast<double>(samples),
                       state);
  shared.arrays.clear();
  return shared;
}

}  // namespace engine
