// Implements capture() and restore().
#include "engine/train/saving/train_state.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>
#include <system_error>

#include "engine/averaging/math/flat_math.h"
#include "engine/averaging/sums/optimizer_sharding.h"
#include "engine/averaging/sums/share_gather.h"
#include "engine/optim/loss_scale.h"
#include "engine/train/replicas/averaging_counts.h"
#include "engine/train/saving/average_kind.h"
#include "engine/train/saving/rank_states.h"
#include "engine/train/saving/weights.h"

namespace engine {
namespace {

constexpr const char* kPolicyPrefix = "averaging.";

// An average of the parameters has their names, in a separate section.
bool is_average(const Optimizer::State& s) { return s.role == StateRole::kAverage; }
io::Section file_section(const Optimizer::State& s) {
  return is_average(s) ? io::Section::kAverage : io::Section::kOptimizer;
}
std::string file_prefix(const Optimizer::State& s) {
  return is_average(s) ? "" : std::string(s.name) + "/";
}

// Returns true if other ranks have the rest of it. Averages are not sharded, because every rank
// evaluates them.
bool is_shared(const TrainState& state, const Optimizer::State& s) {
  return state.shares != nullptr && !is_average(s);
}

// Allocates memory for the shards of all ranks.
FlatBuffer whole_of(const TrainState& state, const Optimizer::State& s) {
  const FlatBuffer& values = state.model.parameters.values;
  if (s.slots == nullptr) return FlatBuffer::like(values);
  std::vector<NamedLayout> layouts;
  for (const std::size_t slot : *s.slots)
    layouts.push_back({values.slots()[slot].name, values.slots()[slot].layout, values.dtype()});
  return {values.dtype(), layouts};
}

// Returns the parts of that memory that each rank has; if only some slots have the state, whole
// tensors are sharded.
std::vector<std::vector<Elements>> parts_of(const TrainState& state, const Optimizer::State& s,
                                            const FlatBuffer& whole) {
  if (s.slots == nullptr) return state.shares->of_rank;
  std::vector<std::vector<Elements>> parts(state.shares->of_rank.size());
  for (std::size_t i = 0; i < s.slots->size(); ++i) {
    const std::int64_t value = state.model.parameters.values.slots()[(*s.slots)[i]].offset;
    for (std::size_t rank = 0; rank < parts.size(); ++rank)
      if (std::ranges::any_of(state.shares->of_rank[rank], [value](const Elements& e) {
            return e.first <= value && value < e.first + e.count;
          }))
        parts[rank].push_back(slot_with_gap(whole, i));
  }
  return parts;
}

void take_share(const TrainState& state, const Optimizer::State& s, const FlatBuffer& whole) {
  const std::size_t width = size_of(whole.dtype());
  auto* to = static_cast<std::byte*>(s.buffer->data());
  const std::vector<std::vector<Elements>> parts = parts_of(state, s, whole);
  for (const Elements& part : parts[static_cast<std::size_t>(state.shares->rank)]) {
    const std::size_t bytes = static_cast<std::size_t>(part.count) * width;
    std::memcpy(
        to,
        static_cast<const std::byte*>(whole.data()) + static_cast<std::size_t>(part.first) * width,
        bytes);
    to += bytes;
  }
}

constexpr const char *kBatch = "trainer.global_batch", *kTaken = "trainer.taken",
                     *kPendingEvaluation = "trainer.evaluation_left",
                     *kFileParts = "trainer.file_parts";

// The number of the epoch's samples that were used before the checkpoint.
std::int64_t samples_done(const io::Checkpoint& checkpoint, std::int64_t global_batch) {
  return checkpoint.step_in_epoch * find_counter(checkpoint.counters, kBatch, global_batch) +
         find_counter(checkpoint.counters, kTaken, 0);
}

// A single division is stored in the format of earlier versions, which accept no other. Several
// divisions have a counter each, with the position in its name: "trainer.file_parts@12" = 3.
void describe_divisions(const TrainState& state, io::Checkpoint& checkpoint) {
  if (state.ranks.of_files == 0) return;
  if (state.divisions.size() <= 1) {
    checkpoint.counters.emplace_back(
        kFileParts, state.divisions.empty() ? state.ranks.of_files : state.divisions.front().ranks);
    return;
  }
  for (const io::Division& d : state.divisions)
    checkpoint.counters.emplace_back(std::string(kFileParts) + "@" + std::to_string(d.first),
                                     d.ranks);
}

// Returns the divisions of a checkpoint's epoch, of which `done` samples were used; none: without
// --shard file.
std::vector<io::Division> saved_divisions(const io::Checkpoint& checkpoint,
                                          const std::string& source, std::int64_t done) {
  constexpr std::int64_t kMaxRanks = 1'000'000;  // the same limit as for the world size of a
                                                 // checkpoint
  const std::string prefix = std::string(kFileParts) + "@";
  std::vector<io::Division> all;
  for (const auto& [name, ranks] : checkpoint.counters) {
    std::int64_t first = 0;
    if (name.starts_with(prefix)) {
      const char* end = name.data() + name.size();
      const auto [next, error] = std::from_chars(name.data() + prefix.size(), end, first);
      if (next != end || error != std::errc()) first = -1;
    } else if (name != kFileParts) {
      continue;
    }
    const bool in_order = all.empty() ? first == 0 : first > all.back().first && first <= done;
    if (!in_order || ranks < 1 || ranks > kMaxRanks)
      throw io::DataError(source + ": its counter " + name + " = " + std::to_string(ranks) +
                          " does not divide an epoch of which " + std::to_string(done) +
                          " samples are done: expected positions from 0 on, in order, and 1 to " +
                          std::to_string(kMaxRanks) + " ranks");
    all.push_back({first, static_cast<int>(ranks)});
  }
  return all;
}

std::string ranks_text(std::int64_t ranks) {
  return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
}

// Returns the position at which a run continues: the same sample of the epoch for any batch size.
TrainProgress continued_progress(const io::Checkpoint& checkpoint, std::int64_t global_batch) {
  TrainProgress progress{checkpoint.global_step, checkpoint.epoch, checkpoint.step_in_epoch,
                         checkpoint.samples_seen, find_counter(checkpoint.counters, kTaken, 0)};
  const std::int64_t batch = find_counter(checkpoint.counters, kBatch, global_batch);
  if (batch == global_batch) return progress;
  const std::int64_t done = progress.step_in_epoch * batch + progress.taken;
  progress.step_in_epoch = done / global_batch;
  progress.taken = done % global_batch;
  return progress;
}

PendingEvaluation pending_evaluation(const io::Checkpoint& checkpoint) {
  const std::int64_t left = find_counter(checkpoint.counters, kPendingEvaluation, 0);
  for (const PendingEvaluation known : {PendingEvaluation::kAll, PendingEvaluation::kAverage})
    if (left == static_cast<std::int64_t>(known)) return known;
  return PendingEvaluation::kNone;
}

// A damaged checkpoint may contain any numbers: after this check samples_done() is below `size`.
void check_position(const io::Checkpoint& checkpoint, const std::string& source, std::int64_t batch,
                    std::int64_t size) {
  const std::int64_t taken = find_counter(checkpoint.counters, kTaken, 0);
  if (batch < 1 || taken < 0 || taken >= size ||
      checkpoint.step_in_epoch > (size - taken - 1) / batch)
    throw io::DataError(source + " states " + std::to_string(checkpoint.step_in_epoch) +
                        " steps of " + std::to_string(batch) + " and " + std::to_string(taken) +
                        " more samples of an epoch, which has " + std::to_string(size) +
                        " samples: expected fewer");
}

void check_continuation(const io::Checkpoint& checkpoint, const std::string& source,
                        const TrainState& state) {
  // At an epoch's boundary a new order starts.
  if (checkpoint.step_in_epoch == 0 && find_counter(checkpoint.counters, kTaken, 0) == 0) return;
  const std::int64_t batch = find_counter(checkpoint.counters, kBatch, state.global_batch);
  const auto refuse_texts = [&](const std::string& saved, const std::string& now) {
    throw ModelError(source + " was saved in the middle of an epoch with " + saved +
                     ", this run has " + now +
                     ": resume with the same, or from the end of an epoch");
  };
  const auto refuse = [&](const char* what, std::int64_t saved, std::int64_t now) {
    refuse_texts(what + (" " + std::to_string(saved)), std::to_string(now));
  };
  const bool recut = batch != state.global_batch && state.may_restore.other_batch;
  if (batch != state.global_batch && !recut) refuse("global batch size", batch, state.global_batch);
  const std::int64_t size =
      find_counter(checkpoint.counters, "trainer.dataset_size", state.dataset_size);
  if (size != state.dataset_size) refuse("data set size", size, state.dataset_size);
  const std::int64_t steps =
      find_counter(checkpoint.counters, "trainer.steps_per_epoch", state.steps_per_epoch);
  if (steps != state.steps_per_epoch && !recut)
    refuse("steps per epoch", steps, state.steps_per_epoch);
  check_position(checkpoint, source, batch, size);
  const std::int64_t done = samples_done(checkpoint, state.global_batch);
  const auto sharding = [](bool file) {
    return std::string(file ? "--shard file" : "another --shard than file");
  };
  const bool divided = !saved_divisions(checkpoint, source, done).empty();
  if (divided != (state.ranks.of_files > 0)) refuse_texts(sharding(divided), sharding(!divided));
  if (checkpoint.seed != state.seed)
    refuse("seed", static_cast<std::int64_t>(checkpoint.seed),
           static_cast<std::int64_t>(state.seed));
}

}  // namespace

void synchronize(backends::Communicator& communicator, TrainState& state) {
  state.policy.synchronize(state.home);
  const FlatBuffer& running = state.model.running;
  if (communicator.world_size() == 1 || !synchronizes_statistics(state.buffers) ||
      running.bytes() == 0)
    return;
  const HostView view(state.home, Access::kWrite);
  // The mean goes to separate memory, so that a failed collective leaves the statistics unchanged.
  FlatBuffer synchronized = FlatBuffer::like(running);
  std::memcpy(synchronized.data(), running.data(), running.bytes());
  if (state.buffers == BufferMode::kRank0) {
    communicator.broadcast(synchronized.data(), synchronized.bytes(), 0);
  } else {
    communicator.all_reduce(synchronized.data(), static_cast<std::size_t>(synchronized.size()),
                            synchronized.dtype(), backends::ReduceOp::kSum);
    with_element_type(synchronized.dtype(), [&]<class T>(T) {
      for (T& v : synchronized.span<T>()) v /= static_cast<T>(communicator.world_size());
    });
  }
  std::memcpy(running.data(), synchronized.data(), running.bytes());
}

namespace {

void describe(const TrainState& state, int world_size, io::Checkpoint& checkpoint) {
  checkpoint.global_step = state.progress.global_step;
  checkpoint.epoch = state.progress.epoch;
  checkpoint.step_in_epoch = state.progress.step_in_epoch;
  checkpoint.samples_seen = state.progress.samples_seen;
  checkpoint.seed = state.seed;
  checkpoint.world_size = world_size;
}

}  // namespace

void capture_model(const TrainState& state, int world_size, StateCopy& copy) {
  const HostView view(state.home, Access::kRead);
  describe(state, world_size, copy.checkpoint());
  export_state(state.model, state.device, copy);
}

void capture_beside(const TrainState& state, int world_size, StateCopy& copy) {
  const HostView view(state.home, Access::kRead);
  io::Checkpoint& checkpoint = copy.checkpoint();
  describe(state, world_size, checkpoint);
  checkpoint.counters = {{kBatch, state.global_batch},
                         {"trainer.dataset_size", state.dataset_size},
                         {"trainer.steps_per_epoch", state.steps_per_epoch},
                         {"optimizer.steps", state.optimizer.step_count()}};
  if (state.progress.taken > 0) checkpoint.counters.emplace_back(kTaken, state.progress.taken);
  describe_divisions(state, checkpoint);
  if (state.pending_evaluation != PendingEvaluation::kNone)
    checkpoint.counters.emplace_back(kPendingEvaluation,
                                     static_cast<std::int64_t>(state.pending_evaluation));
  if (state.control != nullptr) {
    const ScaleCounters scale = scale_counters(state.loss_scale, *state.control);
    checkpoint.counters.insert(checkpoint.counters.end(), scale.begin(), scale.end());
  }
  for (const auto& [name, value] : state.policy.counters())
    checkpoint.counters.emplace_back(kPolicyPrefix + name, value);
  for (const auto& [name, value] : state.policy.other_counts())
    checkpoint.counters.emplace_back(kPolicyPrefix + name, value);
  for (const PolicyState& s : state.policy.state())
    export_slots(*s.buffer, policy_prefix(s), io::Section::kAveraging, state.device, copy);
  for (const Stateful* part : state.parts) part->capture(copy);
}

namespace {

void export_optimizer(const TrainState& state, const Optimizer::State& s, const FlatBuffer& whole,
                      StateCopy& copy) {
  export_buffer(whole, state.model, ModelState::Kind::kParameter, file_prefix(s), file_section(s),
                state.device, copy);
}

// The same as capture_own() on rank 0, one state of the optimizer after the other.
void capture_shares(backends::Communicator& communicator, const TrainState& state,
                    StateCopy& copy) {
  const bool root = communicator.rank() == 0;
  if (root) export_state(state.model, state.device, copy);
  ShareGather pieces(communicator.world_size(), state.model.parameters.values.dtype());
  for (const Optimizer::State& s : state.optimizer.state()) {
    if (!is_shared(state, s)) {
      if (root) export_optimizer(state, s, *s.buffer, copy);
      continue;
    }
    const FlatBuffer whole = whole_of(state, s);
    const std::vector<std::vector<Elements>> parts = parts_of(state, s, whole);
    const Elements own[] = {{0, count_of(parts[static_cast<std::size_t>(state.shares->rank)])}};
    pieces.gather(communicator, s.buffer->data(), own, parts, root ? whole.data() : nullptr);
    if (root) export_optimizer(state, s, whole, copy);
  }
  if (root) capture_beside(state, communicator.world_size(), copy);
}

}  // namespace

void capture_own(const TrainState& state, int world_size, StateCopy& copy) {
  require(state.shares == nullptr, "a rank has a share of the optimizer's state only");
  const HostView view(state.home, Access::kRead);
  export_state(state.model, state.device, copy);
  for (const Optimizer::State& s : state.optimizer.state())
    export_optimizer(state, s, *s.buffer, copy);
  capture_beside(state, world_size, copy);
}

void capture(backends::Communicator& communicator, TrainState& state, StateCopy& copy) {
  synchronize(communicator, state);
  const HostView view(state.home, Access::kRead);
  const bool root = communicator.rank() == 0;
  if (state.shares != nullptr)
    capture_shares(communicator, state, copy);
  else if (root)
    capture_own(state, communicator.world_size(), copy);
  capture_rank_states(communicator, state, copy);
}

namespace {

// Gives notice of the averaging's memory in a checkpoint that this run's policy does not have.
void report_dropped(const io::Checkpoint& checkpoint, const std::string& source, int world_size,
                    const std::vector<PolicyState>& taken,
                    const std::function<void(const std::string&)>& notice) {
  std::set<std::string> dropped;
  for (const io::NamedArray& array : checkpoint.arrays)
    if (array.section == io::Section::kAveraging)
      dropped.insert(array.name.substr(0, array.name.find('/')));
  for (const PolicyState& s : taken) dropped.erase(s.name);
  for (const std::string& name : dropped)
    notice(
        "the averaging's " + name + " in " + source + " is dropped: " +
        (world_size == 1 ? "one rank averages nothing" : "this run's averaging does not use it"));
}

// Gives notice of the exchanges in flight that a run with another number of fragments drops.
void report_dropped_exchanges(const io::Checkpoint& checkpoint, const std::string& source,
                              const AveragingPolicy& policy,
                              const std::function<void(const std::string&)>& notice) {
  const std::string prefix = std::string(kPolicyPrefix) + "fragment";
  const std::int64_t saved = find_counter(checkpoint.counters, prefix + "s", 0),
                     own = find_counter(policy.counters(), "fragments", 0);
  if (saved == 0 || own == 0 || saved == own) return;
  const auto in_flight = std::ranges::count_if(checkpoint.counters, [&prefix](const auto& counter) {
    return counter.first.starts_with(prefix) && counter.first.ends_with(".sent_at") &&
           counter.second > 0;
  });
  if (in_flight > 0)
    notice("the averaging's " + std::to_string(in_flight) +
           (in_flight == 1 ? " fragment in flight in " : " fragments in flight in ") + source +
           (in_flight == 1 ? " is" : " are") + " dropped: it has " + std::to_string(saved) +
           (saved == 1 ? " fragment" : " fragments") + ", this run " + std::to_string(own));
}

// Restores the averaging's memory. A checkpoint of another policy has none: then it starts over,
// with a notice to the user. Memory of single ranks is not valid for another world size, except
// that of a rank that saved alone after the loss of others: what it had not sent is sent once, by
// rank 0. A run of one rank sends nothing: only a rank that saved alone has it in a world of 1.
void restore_policy(const io::Checkpoint& checkpoint, const std::string& source, int rank,
                    int world_size, TrainState& state,
                    const std::function<void(const std::string&)>& notice) {
  const bool same_world = checkpoint.world_size == world_size;
  const bool saved_alone = checkpoint.world_size == 1;
  PolicyCounters saved;
  for (const auto& [name, value] : checkpoint.counters)
    if (name.starts_with(kPolicyPrefix))
      saved.emplace_back(name.substr(std::strlen(kPolicyPrefix)), value);
  const std::vector<PolicyState> all = state.policy.state();
  if (notice) {
    report_dropped(checkpoint, source, world_size, all, notice);
    report_dropped_exchanges(checkpoint, source, state.policy, notice);
  }
  for (const PolicyState& s : all) {
    if (s.buffer->slots().empty()) continue;
    const std::string prefix = policy_prefix(s), first = prefix + s.buffer->slots().front().name;
    const bool there = checkpoint.find(io::Section::kAveraging, first) != nullptr;
    const bool is_of_rank = s.local && !same_world;
    if (there && (!is_of_rank || (saved_alone && rank == 0)))
      import_buffer(checkpoint.arrays, source, prefix, io::Section::kAveraging, *s.buffer);
    if (!notice || (there && !is_of_rank)) continue;
    const std::string what = "the averaging's " + s.name;
    notice(!there        ? source + " has no " + s.name + " for the averaging: it starts over"
           : saved_alone ? what + " in " + source +
                               " is that of one rank, which saved alone: rank "
                               "0 continues with it, the other ranks start from zero"
                         : what + " is per-rank state; reset because the world size changed");
  }
  restore_counts(saved, checkpoint.global_step, state.policy);
}

// A checkpoint of a run without a moving average has none to continue.
void restore_average(const io::Checkpoint& checkpoint, const std::string& source,
                     const Optimizer::State& average, const TrainState& state,
                     const std::function<void(const std::string&)>& notice) {
  if (average_kind(checkpoint) == AverageKind::kMoving)
    return import_buffer(checkpoint.arrays, source, "", io::Section::kAverage, *average.buffer);
  copy_flat(state.model.parameters.values, *average.buffer);
  if (notice) notice(source + " has no moving average of the weights: it starts from its weights");
}

// The checkpoint of an optimizer without states, as of SGD without momentum, has none to continue.
void restore_optimizer(const io::Checkpoint& checkpoint, const std::string& source,
                       TrainState& state, const std::function<void(const std::string&)>& notice) {
  const auto has_state = [&](const std::string& prefix) {
    return std::ranges::any_of(checkpoint.arrays, [&](const io::NamedArray& a) {
      return a.section == io::Section::kOptimizer && a.name.starts_with(prefix);
    });
  };
  const bool starts_over = state.may_restore.other_optimizer || !has_state("");
  for (const Optimizer::State& s : state.optimizer.state()) {
    if (is_average(s)) {
      restore_average(checkpoint, source, s, state, notice);
      continue;
    }
    const std::string name(s.name), prefix = name + "/";
    if (starts_over && !has_state(prefix)) {
      if (notice) notice(source + " has no " + name + " for the optimizer: it starts from zero");
      continue;
    }
    if (!is_shared(state, s)) {
      import_buffer(checkpoint.arrays, source, prefix, io::Section::kOptimizer, *s.buffer);
      continue;
    }
    FlatBuffer whole = whole_of(state, s);
    import_buffer(checkpoint.arrays, source, prefix, io::Section::kOptimizer, whole);
    take_share(state, s, whole);
  }
}

// REQUIRES: check_continuation().
void restore_divisions(const io::Checkpoint& checkpoint, const std::string& source,
                       TrainState& state, const std::function<void(const std::string&)>& notice) {
  state.divisions.clear();
  const std::int64_t done = samples_done(checkpoint, state.global_batch);
  if (state.ranks.of_files == 0 || done == 0) return;
  const std::vector<io::Division> saved = saved_divisions(checkpoint, source, done);
  state.divisions = io::continued_divisions(saved, done, state.ranks.of_files);
  if (state.divisions.back().first != done || !notice) return;
  notice("--shard file: " + std::to_string(state.dataset_size - done) + " of " +
         std::to_string(state.dataset_size) + " samples of epoch " +
         std::to_string(checkpoint.epoch + 1) + " are left of the parts of " +
         ranks_text(saved.back().ranks) + "; " + ranks_text(state.ranks.of_files) +
         (state.ranks.of_files == 1 ? " takes them" : " divide them among themselves"));
}

// REQUIRES: check_continuation().
void restore_rest(const io::Checkpoint& checkpoint, const std::string& source, int rank,
                  int world_size, TrainState& state,
                  const std::function<void(const std::string&)>& notice) {
  const HostView view(state.home, Access::kWrite);
  restore_policy(checkpoint, source, rank, world_size, state, notice);
  if (checkpoint.world_size != world_size) {
    if (notice)
      notice(source + " was saved by " + ranks_text(checkpoint.world_size) + ", this run has " +
             std::to_string(world_size) + ": all ranks take rank 0's state");
  } else {
    restore_rank_states(checkpoint, source, rank, state, notice);
  }
  if (state.control != nullptr)
    restore_scale(state.loss_scale, checkpoint.counters, *state.control);
  const std::int64_t updates =
      find_counter(checkpoint.counters, "optimizer.steps", checkpoint.global_step);
  state.optimizer.set_step_count(updates);
  restore_divisions(checkpoint, source, state, notice);
  state.progress = continued_progress(checkpoint, state.global_batch);
  state.pending_evaluation = pending_evaluation(checkpoint);
  for (Stateful* part : state.parts) part->restore(checkpoint, source, notice);
  if (state.policy.coupling().gradients != GradientRanks::kAll) return;
  for (Stateful* part : state.parts) part->forget_ranks_updates();
  state.optimizer.set_step_count(updates);
}

}  // namespace

void restore(const io::Checkpoint& checkpoint, const std::string& source, int rank, int world_size,
             TrainState& state, const std::function<void(const std::string&)>& notice) {
  check_continuation(checkpoint, source, state);
  const HostView view(state.home, Access::kWrite);
  import_state(checkpoint.arrays, source, /*exact=*/true, state.model);
  restore_optimizer(checkpoint, source, state, notice);
  restore_rest(checkpoint, source, rank, world_size, state, notice);
}

void restore_beside(const io::Checkpoint& checkpoint, const std::string& source, int rank,
                    int world_size, TrainState& state,
                    const std::function<void(const std::string&)>& notice) {
  check_continuation(checkpoint, source, state);
  restore_rest(checkpoint, source, rank, world_size, state, notice);
}

}  // namespace engine
