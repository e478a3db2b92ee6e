// Formats session facts as lines.
#include "tools/report/text/session_text.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "io/base/text/escape_text.h"
#include "io/base/text/memory_text.h"
#include "io/base/text/text_parts.h"
#include "tools/report/text/progress_line.h"

namespace tools {
namespace {

std::string_view schedule_text(engine::LearningRate::Schedule schedule) {
  using Schedule = engine::LearningRate::Schedule;
  return schedule == Schedule::kCosine        ? "cosine"
         : schedule == Schedule::kStep        ? "step"
         : schedule == Schedule::kLinear      ? "linear"
         : schedule == Schedule::kStableDecay ? "wsd"
         : schedule == Schedule::kRange       ? "range"
                                              : "constant";
}

std::string counted_samples(std::int64_t count) {
  return with_commas(count) + (count == 1 ? " sample" : " samples");
}

// Returns e.g. "4 ranks x 2 devices x 32 x 1" (the last: micro-batches), or each rank's share if
// they differ.
std::string batch_shares(const SessionFacts& facts) {
  const BatchFacts& batch = facts.batch;
  const int world = facts.ranks.count;
  if (batch.even)
    return base::count_text(world / batch.devices, "rank") + " x " +
           base::count_text(batch.devices, "device") + " x " +
           std::to_string(batch.global / (world * batch.micro_batches)) + " x " +
           std::to_string(batch.micro_batches);
  std::string line;
  for (std::size_t r = 0; r < batch.shares.size(); ++r) {
    if (r == 4 && world > 5) return line + " + ...";
    line += (r ? " + " : "") + std::to_string(batch.shares[r]);
  }
  const std::int64_t parts = batch.micro_batches;
  return parts == 1 ? line : line + " in " + std::to_string(parts) + " micro-batches";
}

std::string model_text(const ModelFacts& model) {
  return model.name + " (" + with_commas(model.parameters) + " parameters, " +
         std::string(engine::to_string(model.dtype)) + ")";
}

std::string data_text(const DataFacts& data) {
  return data.name + " (" + with_commas(data.train) + " train, " + with_commas(data.test) +
         " test)";
}

std::string ranks_and_backend(const RankFacts& ranks) {
  std::string text = base::count_text(ranks.count, "rank") + " x " + ranks.computes;
  if (!ranks.bound_to.empty())
    text += std::string(" | ") + (ranks.count == 1 ? "" : "rank 0 ") + "bound to " + ranks.bound_to;
  return text + " | backend " + ranks.backend + " (" + ranks.backend_reason + ")";
}

std::string averaging_text(const SessionFacts& facts) {
  std::string text = facts.averaging.text;
  if (facts.averaging.canonical_shards)
    text += " (" + std::to_string(*facts.averaging.canonical_shards) + " shards)";
  if (facts.model.synchronized_layers)
    text += " | sync-bn of " + base::count_text(*facts.model.synchronized_layers, "layer");
  return text;
}

std::string update_text(const UpdateFacts& update) {
  return update.optimizer + " lr " + base::number_text("%g", update.lr) + update.lr_arithmetic +
         " " + std::string(schedule_text(update.schedule)) +
         (update.details.empty() ? "" : " (" + update.details + ")");
}

std::string columns_line(const SessionFacts& facts) {
  return facts.data.columns.empty() ? "" : "Columns of " + base::escape_text(facts.data.columns);
}

std::string capture_line(const SessionFacts& facts) {
  return facts.capture.empty() ? "" : "Steps on the device: " + facts.capture;
}

std::string placement_line(const SessionFacts& facts) {
  return facts.data.on_device.empty() ? "" : "Samples on the device: " + facts.data.on_device;
}

// Returns why the limit is what is free; "" if it is the requested one.
std::string bound_text(const MemoryFacts& memory, const std::string& requested) {
  if (memory.requested == memory.limit) return "";
  return memory.requested > memory.limit
             ? " that are free, less than --memory of " + requested
             : " that are free, since no plan fits nine tenths of it (" + requested + ")";
}

std::string memory_line(const SessionFacts& facts) {
  if (!facts.memory) return "";
  const MemoryFacts& memory = *facts.memory;
  std::string line =
      "Memory: " + base::memory_text(memory.total) + " of " + base::memory_text(memory.limit) +
      bound_text(memory, base::memory_text(memory.requested)) + ": parameters " +
      base::memory_text(memory.parameters) + ", gradients " + base::memory_text(memory.gradients) +
      ", optimizer " + base::memory_text(memory.optimizer) +
      (memory.averaging > 0 ? ", averaging " + base::memory_text(memory.averaging) : "") +
      (memory.saving > 0 ? ", saving " + base::memory_text(memory.saving) : "") + ", activations " +
      base::memory_text(memory.activations) + " (" + base::memory_text(memory.kept) +
      " kept for backward); ";
  if (memory.recomputed_layers == 0)
    line += "nothing is recomputed";
  else
    line += "recomputed: " + base::memory_text(memory.recomputed) + " in " +
            base::count_text(memory.segments, "segment") + " (" +
            std::to_string(memory.recomputed_layers) + " of " +
            base::count_text(memory.layers, "layer") + "), " +
            base::number_text("%.1f", 100 * memory.added_flops) + " % more operations";
  return line + "; at most --batch-size-per-device " + std::to_string(memory.largest_batch) +
         " fits";
}

std::string sampler_line(const SessionFacts& facts) {
  if (!facts.data.partition) return "";
  const io::PartitionCheck& check = *facts.data.partition;
  std::string text = "Sampler: each of " + counted_samples(facts.data.train) +
                     " is in the share of " +
                     (check.repeated > 0   ? "one rank at least"
                      : check.left_out > 0 ? "one rank at most"
                                           : "exactly one rank") +
                     " of " + std::to_string(facts.ranks.count) + " in each of epochs 1 to " +
                     std::to_string(check.epochs);
  if (check.left_out > 0) text += "; " + counted_samples(check.left_out) + " left out of an epoch";
  if (check.repeated > 0) text += "; " + counted_samples(check.repeated) + " used twice to fill it";
  return text;
}

std::vector<std::string> shard_lines(const SessionFacts& facts) {
  std::vector<std::string> lines;
  for (std::size_t rank = 0; rank < facts.data.shards.size(); ++rank) {
    const io::FileShard& part = facts.data.shards[rank];
    lines.push_back(
        "shard id: " + std::to_string(rank) + ", world: " + std::to_string(facts.ranks.count) +
        ", start: " + std::to_string(part.start) + ", end: " + std::to_string(part.end));
  }
  return lines;
}

}  // namespace

std::string start_line(const SessionFacts& facts, const std::string& version) {
  const std::int64_t steps = facts.batch.steps_per_epoch;
  return "engine " + version + ": " + model_text(facts.model) + " on " + data_text(facts.data) +
         " | " + ranks_and_backend(facts.ranks) + " | sync " + averaging_text(facts) +
         " | global batch " + std::to_string(facts.batch.global) + " = " + batch_shares(facts) +
         " | " + std::to_string(steps) + (steps == 1 ? " step an epoch, " : " steps an epoch, ") +
         std::to_string(facts.length.total_steps) + " in all | " + update_text(facts.update) +
         " | seed " + std::to_string(facts.seed);
}

std::string state_text(const SessionFacts& facts) {
  const StartFacts& start = facts.start;
  using Source = StartFacts::Source;
  switch (start.source) {
    case Source::kMemory:
      return "the state of step " + std::to_string(start.step);
    case Source::kCheckpoint:
      return "resumed " + start.path + " at step " + std::to_string(start.step);
    case Source::kWeights:
      return "weights from " + start.path +
             (start.left_out.empty() ? "" : ", but for " + base::join_text(start.left_out));
    case Source::kSeed:
    case Source::kNone:
      break;
  }
  return "fresh weights from seed " + std::to_string(facts.seed);
}

std::string scale_text(const SessionFacts& facts) {
  if (facts.ranks.full_count == 0) return "";
  return "global batch " + std::to_string(facts.batch.global) + " = " + batch_shares(facts) +
         ", lr " + base::number_text("%g", facts.update.lr) + " for " +
         std::to_string(facts.ranks.count) + " of " + std::to_string(facts.ranks.full_count) +
         " ranks";
}

std::vector<std::string> data_warnings(const SessionFacts& facts) {
  std::vector<std::string> warnings = facts.data.warnings;
  if (facts.batch.global > facts.data.train)
    warnings.push_back("a batch of " + std::to_string(facts.batch.global) +
                       " samples is more than the " + std::to_string(facts.data.train) +
                       " training samples: each step takes all of them");
  return warnings;
}

std::string frozen_line(const SessionFacts& facts) {
  const ModelFacts& model = facts.model;
  if (model.frozen_tensors == 0) return "";
  std::string line = "Frozen: " + std::to_string(model.frozen_tensors) + " of " +
                     std::to_string(model.tensors) + " parameters (" +
                     with_commas(model.frozen_parameters) + " of " + with_commas(model.parameters) +
                     " values)";
  if (model.frozen_layers > 0)
    line += "; the running statistics of " + base::count_text(model.frozen_layers, "layer") +
            " stay as they are";
  return line;
}

std::vector<std::string> detail_lines(const SessionFacts& facts) {
  std::vector<std::string> lines{columns_line(facts), capture_line(facts), placement_line(facts),
                                 memory_line(facts),  frozen_line(facts),  sampler_line(facts)};
  std::erase(lines, "");
  std::ranges::move(shard_lines(facts), std::back_inserter(lines));
  return lines;
}

std::vector<std::string> averaging_lines(const SessionFacts& facts) {
  std::vector<std::string> lines;
  if (!facts.averaging.plan) return lines;
  for (const std::string& line : engine::describe(*facts.averaging.plan))
    lines.push_back("Averaging: " + line);
  return lines;
}

std::string completion_text(const SessionFacts& facts) {
  const LengthFacts& length = facts.length;
  if (length.left == LengthFacts::Left::kNothingForPatience)
    return "nothing left to do: stopped early after step " + std::to_string(length.done_steps) +
           " (" + length.why_stopped + "); --early-stop " + std::to_string(2 * length.patience) +
           " continues it";
  const std::string what = length.by_steps ? "step" : "epoch";
  return "nothing left to do: " + what + " " + std::to_string(length.done) +
         (length.done == length.asked
              ? " of " + std::to_string(length.asked) + " is done"
              : " is done, --" + what + "s is " + std::to_string(length.asked)) +
         "; --" + what + "s " +
         std::to_string(length.by_steps ? 2 * length.done : length.done + 2) + " continues it";
}

}  // namespace tools
