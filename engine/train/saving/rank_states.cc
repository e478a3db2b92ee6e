// Implements the arrays of single ranks.
#include "engine/train/saving/rank_states.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "engine/train/saving/weights.h"

namespace engine {
namespace {

struct LocalBuffer {  // memory whose contents may differ between ranks
  FlatBuffer* buffer;
  std::optional<ModelState::Kind> kind;  // none: it has its own slots
  std::string prefix;                    // prefix of its arrays' names
};

std::vector<LocalBuffer> statistics_of(TrainState& state) {
  if (state.buffers == BufferMode::kEqual) return {};
  return {{&state.model.running, ModelState::Kind::kRunning, ""},
          {&state.model.counters, ModelState::Kind::kCounter, ""}};
}

std::vector<LocalBuffer> moments_of(TrainState& state) {
  std::vector<LocalBuffer> all;
  for (const Optimizer::State& s : state.optimizer.state())
    all.push_back({s.buffer, ModelState::Kind::kParameter, std::string(s.name) + "/"});
  return all;
}

std::vector<LocalBuffer> memory_of_policy(TrainState& state) {
  std::vector<LocalBuffer> all;
  for (const PolicyState& s : state.policy.state())
    if (s.local) all.push_back({s.buffer, std::nullopt, policy_prefix(s)});
  return all;
}

void append(std::vector<LocalBuffer>& all, const std::vector<LocalBuffer>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

std::vector<LocalBuffer> local_buffers(TrainState& state) {
  std::vector<LocalBuffer> all = statistics_of(state);
  const RankDifferences differ = state.policy.differences();
  if (differ.parameters)
    all.push_back({&state.model.parameters.values, ModelState::Kind::kParameter, ""});
  if (differ.optimizer_states) append(all, moments_of(state));
  append(all, memory_of_policy(state));
  return all;
}

std::string rank_prefix(int rank) { return "rank" + std::to_string(rank) + "/"; }

bool has_state_of(const io::Checkpoint& checkpoint, int rank, const LocalBuffer& local) {
  const auto slots = local.buffer->slots();
  return !slots.empty() &&
         checkpoint.find(io::Section::kRankState,
                         rank_prefix(rank) + local.prefix + slots.front().name) != nullptr;
}

// If the ranks that saved shared one copy (another policy or order), rank 0's, which is already in
// place, is valid for all ranks.
void take_state_of(int rank, const io::Checkpoint& checkpoint, const std::string& source,
                   const std::vector<LocalBuffer>& buffers) {
  for (const LocalBuffer& local : buffers)
    if (rank > 0 && has_state_of(checkpoint, rank, local))
      import_buffer(checkpoint.arrays, source, rank_prefix(rank) + local.prefix,
                    io::Section::kRankState, *local.buffer);
}

// Returns true if the checkpoint has a model for each rank.
bool has_models(const io::Checkpoint& checkpoint, TrainState& state) {
  return has_state_of(checkpoint, 1,
                      {&state.model.parameters.values, ModelState::Kind::kParameter, ""});
}

// Returns the rank whose optimizer state `rank` takes.
int source_of_moments(int rank, const TrainState& state) {
  if (!state.policy.differences().optimizer_states) return 0;
  switch (state.policy.coupling().gradients) {
    case GradientRanks::kAll:
      return 0;
    case GradientRanks::kIsland:
      return state.ranks.first_of_island.at(static_cast<std::size_t>(rank));
    case GradientRanks::kNone:
      break;
  }
  return rank;
}

// Returns a rank's optimizer state. REQUIRES: `state` has that of rank 0.
FlatBuffer moments_in(const io::Checkpoint& checkpoint, const std::string& source, int rank,
                      const LocalBuffer& local) {
  FlatBuffer moments = FlatBuffer::like(*local.buffer);
  std::memcpy(moments.data(), local.buffer->data(), moments.bytes());
  take_state_of(rank, checkpoint, source, {{&moments, local.kind, local.prefix}});
  return moments;
}

bool moments_differ(int a, int b, const io::Checkpoint& checkpoint, const std::string& source,
                    TrainState& state) {
  // The buffers of a shard have no names of parameters.
  const auto is_of_either = [&](const io::NamedArray& array, const LocalBuffer& local) {
    return array.section == io::Section::kRankState &&
           (array.name.starts_with(rank_prefix(a) + local.prefix) ||
            array.name.starts_with(rank_prefix(b) + local.prefix));
  };
  return std::ranges::any_of(moments_of(state), [&](const LocalBuffer& local) {
    if (state.shares != nullptr)
      return std::ranges::any_of(checkpoint.arrays, [&](const io::NamedArray& array) {
        return is_of_either(array, local);
      });
    if (!has_state_of(checkpoint, a, local) && !has_state_of(checkpoint, b, local)) return false;
    const FlatBuffer x = moments_in(checkpoint, source, a, local),
                     y = moments_in(checkpoint, source, b, local);
    return std::memcmp(x.data(), y.data(), x.bytes()) != 0;
  });
}

void report_dropped_moments(const io::Checkpoint& checkpoint, const std::string& source,
                            TrainState& state,
                            const std::function<void(const std::string&)>& notice) {
  for (int rank = 1; rank < checkpoint.world_size; ++rank) {
    const int from = source_of_moments(rank, state);
    if (from == rank || !moments_differ(rank, from, checkpoint, source, state)) continue;
    const bool all_equal = !state.policy.differences().optimizer_states;
    const bool of_island =
        !all_equal && state.policy.coupling().gradients == GradientRanks::kIsland;
    notice(source + " has an optimizer state for each rank: " +
           (of_island ? "the ranks of each host take that of its first rank"
                      : "all ranks take that of rank 0") +
           (all_equal ? ", because this run keeps the states equal"
                      : ", because the next steps average gradients over them"));
    return;
  }
}

}  // namespace

std::string policy_prefix(const PolicyState& state) { return state.name + "/"; }

void capture_rank_states(backends::Communicator& communicator, TrainState& state, StateCopy& copy) {
  const bool root = communicator.rank() == 0;
  for (int rank = 1; rank < communicator.world_size(); ++rank) {
    for (const LocalBuffer& local : local_buffers(state)) {
      if (local.buffer->bytes() == 0) continue;
      const FlatBuffer theirs = FlatBuffer::like(*local.buffer);
      if (communicator.rank() == rank)
        std::memcpy(theirs.data(), local.buffer->data(), theirs.bytes());
      communicator.broadcast(theirs.data(), theirs.bytes(), rank);
      if (!root) continue;
      const std::string prefix = rank_prefix(rank) + local.prefix;
      if (local.kind)
        export_buffer(theirs, state.model, *local.kind, prefix, io::Section::kRankState,
                      state.device, copy);
      else
        export_slots(theirs, prefix, io::Section::kRankState, state.device, copy);
    }
  }
}

void restore_rank_states(const io::Checkpoint& checkpoint, const std::string& source, int rank,
                         TrainState& state, const std::function<void(const std::string&)>& notice) {
  const RankDifferences differ = state.policy.differences();
  if (!differ.parameters && has_models(checkpoint, state)) {
    if (notice)
      notice(source + " has a model for each of its " + std::to_string(checkpoint.world_size) +
             " ranks: all ranks take rank 0's state, the other models are dropped");
    return;
  }
  if (notice) report_dropped_moments(checkpoint, source, state, notice);
  if (differ.parameters)
    take_state_of(rank, checkpoint, source,
                  {{&state.model.parameters.values, ModelState::Kind::kParameter, ""}});
  if (differ.optimizer_states)
    take_state_of(source_of_moments(rank, state), checkpoint, source, moments_of(state));
  take_state_of(rank, checkpoint, source, statistics_of(state));
  take_state_of(rank, checkpoint, source, memory_of_policy(state));
}

}  // namespace engine
