// Computes the order of an epoch and divides its steps into the ranks' slices.
//
// Every rank computes the whole permutation from (seed, epoch) and takes its slice of each step:
// nothing is exchanged, and with another number of ranks the same samples form the same step. For
// example 10 samples, global batch 4, 3 ranks, kJoin: the steps take positions 0-3, 4-7 and 8-9 of
// the permutation. Position p counts for rank p mod 3, so the first step gives the ranks 2, 1, 1
// samples, the second 1, 2, 1 and the last 1, 0, 1: 4, 3, 3 in total. The extra sample moves from
// rank to rank instead of always going to rank 0. Only the counts follow from p mod 3; the
// positions themselves are assigned as contiguous slices in rank order.
#include "io/data/order/sampler.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/base/numbers/part_bounds.h"
#include "io/base/numbers/split_mix.h"
#include "io/data/order/sample_order.h"

namespace io {
namespace {

void check(const SamplerOptions& options) {
  constexpr std::int64_t kMaxSize = 0xFFFFFFFF;  // the generator draws positions of 32 bits
  if (options.size < 1 || options.size > kMaxSize) {
    throw ConfigError("a sampler over " + std::to_string(options.size) + " samples: expected 1.." +
                      std::to_string(kMaxSize));
  }
  if (options.global_batch < 1) {
    throw ConfigError("the batch size is " + std::to_string(options.global_batch) +
                      ", expected 1 or more");
  }
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    throw ConfigError("rank " + std::to_string(options.rank) + " of a world of " +
                      std::to_string(options.world_size) + ": expected 0 <= rank < world size");
  }
}

std::string ranks_text(int world_size) {
  return std::to_string(world_size) + (world_size == 1 ? " rank" : " ranks");
}

void check_sharing(const SamplerOptions& options) {
  const std::string batch = "batch-size " + std::to_string(options.global_batch);
  if (options.uneven != Uneven::kJoin && options.parts == 0 &&
      options.global_batch % options.world_size != 0) {
    throw ConfigError(std::string("--uneven ") +
                      (options.uneven == Uneven::kDrop ? "drop" : "pad") +
                      " gives every rank equally many samples, but " + batch +
                      " is not a multiple of the world of " + ranks_text(options.world_size) +
                      "; choose another, or --uneven join");
  }
  if (options.uneven == Uneven::kDrop && options.size < options.global_batch) {
    throw ConfigError("--uneven drop leaves no step: " + batch + " is more than the " +
                      std::to_string(options.size) + " samples of the data set");
  }
  if (options.parts < 0 || (options.parts > 0 && options.parts < options.world_size)) {
    throw ConfigError("a step is cut into " + std::to_string(options.parts) +
                      " shards, too few for a world of " + ranks_text(options.world_size) +
                      ": expected one for each rank or more; give --reduction-shards " +
                      std::to_string(std::bit_ceil(static_cast<unsigned>(options.world_size))));
  }
  if (options.shard == Shard::kFile && options.uneven == Uneven::kPad &&
      options.size < options.world_size) {
    throw ConfigError(
        "--shard file leaves ranks without samples to repeat: " + std::to_string(options.size) +
        " samples for a world of " + ranks_text(options.world_size) + "; use --uneven join");
  }
  if (options.shard == Shard::kFile && options.order != nullptr) {
    throw ConfigError(
        "--shard file keeps each rank to its part of the data set, in an order of its own: use "
        "--sampler shuffle");
  }
  if (options.parts > 0 &&
      (options.shard != Shard::kContiguous || options.uneven == Uneven::kPad)) {
    throw ConfigError(
        "shards that are the same for every world size need --shard contiguous and --uneven join "
        "or drop");
  }
}

void check_shares(const SamplerOptions& options, const BatchShares& shares) {
  if (shares.are_equal() && !options.shares_change) return;
  if (!shares.are_equal() && shares.ranks() != options.world_size)
    throw ConfigError("shares " + shares.text() + " are of " + ranks_text(shares.ranks()) +
                      ", expected those of a world of " + ranks_text(options.world_size));
  if (options.shard != Shard::kContiguous || options.uneven == Uneven::kPad)
    throw ConfigError(
        "--shares and --local-steps divide the samples among the ranks: expected --shard "
        "contiguous "
        "and --uneven join or drop");
  if (options.shares_change && options.parts > 0)
    throw ConfigError(
        "--shares auto and --local-steps change the ranks' shares, but shards in canonical order "
        "stay "
        "on their ranks: use --reduction-order fast, or --shares with weights");
}

// Position p of an epoch counts for rank p mod R: this many of the positions before `end` count for
// the ranks before `rank`. A rank's count in [first, end) is then a difference of two, and over any
// run of positions ranks differ by at most 1.
std::int64_t counted_before(std::int64_t rank, std::int64_t world_size, std::int64_t end) {
  return rank * (end / world_size) + std::min(rank, end % world_size);
}

// Parts of a file that are one sample longer may belong to any ranks, but positions count first for
// the lowest numbers: these are assigned so that every rank gets exactly the length of its part.
std::vector<std::int64_t> file_turns(std::int64_t size, int world_size) {
  std::vector<std::int64_t> turns;
  std::int64_t next_longer = 0, next_shorter = size % world_size;
  for (int rank = 0; rank < world_size; ++rank) {
    const FileShard shard = file_shard(size, rank, world_size);
    turns.push_back(shard.end - shard.start > size / world_size ? next_longer++ : next_shorter++);
  }
  return turns;
}

// The number of positions p before `position` with p mod world_size = turn.
std::int64_t turns_before(std::int64_t position, std::int64_t turn, int world_size) {
  return position / world_size + (turn < position % world_size);
}

template <typename Iterator>
void shuffle(Iterator first, Iterator last, SplitMix random) {
  for (auto i = last - first - 1; i > 0; --i)
    std::swap(first[i], first[random.below(static_cast<std::uint32_t>(i) + 1)]);
}

}  // namespace

FileShard file_shard(std::int64_t size, int rank, int world_size) {
  const auto bounds = base::part_bounds(size, rank, world_size);
  return {bounds.begin, bounds.end};
}

std::vector<Division> continued_divisions(std::vector<Division> divisions, std::int64_t done,
                                          int ranks) {
  while (divisions.back().first == done) divisions.pop_back();  // without a step
  if (divisions.back().ranks != ranks) divisions.push_back({done, ranks});
  return divisions;
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  check(options_);
  check_sharing(options_);
  check_shares(options_, options_.shares);
  positions_ = options_.size;
  if (options_.uneven == Uneven::kDrop) positions_ -= positions_ % options_.global_batch;
  if (options_.uneven == Uneven::kPad)
    positions_ = (positions_ - 1) / options_.world_size * options_.world_size + options_.world_size;
  options_.global_batch =
      std::min(options_.global_batch, positions_);  // the same steps, and no product overflows
  order_.resize(static_cast<std::size_t>(std::max(options_.size, positions_)));
  if (options_.parts > 0)
    part_bounds_ = divide_parts(options_.parts, options_.world_size, options_.shares);
  if (options_.shard != Shard::kContiguous) {
    if (options_.shard == Shard::kFile) turns_ = file_turns(options_.size, options_.world_size);
    own_.resize(
        static_cast<std::size_t>(own_before(std::max(options_.size, positions_), options_.rank)));
  }
  set_epoch(0);
}

std::int64_t Sampler::steps_per_epoch() const {
  return (positions_ - 1) / options_.global_batch + 1;
}

std::int64_t Sampler::global_count(std::int64_t step, std::int64_t taken) const {
  return std::min(options_.global_batch, positions_ - step * options_.global_batch) - taken;
}

Sampler::Slice Sampler::slice(std::int64_t step, int rank, std::int64_t taken) const {
  if (step < 0 || step >= steps_per_epoch()) {
    throw std::out_of_range("step " + std::to_string(step) + " of an epoch of " +
                            std::to_string(steps_per_epoch()));
  }
  const std::int64_t first = step * options_.global_batch + taken,
                     end = first + global_count(step, taken);
  if (options_.shard != Shard::kContiguous) {
    const std::int64_t before = own_before(first, rank);
    return {before, own_before(end, rank) - before};
  }
  const std::int64_t before = samples_before(rank, first, end);
  return {first + before, samples_before(rank + 1, first, end) - before};
}

std::int64_t Sampler::samples_before(int rank, std::int64_t first, std::int64_t end) const {
  if (options_.parts > 0)
    return base::part_begin(end - first, part_bounds_[static_cast<std::size_t>(rank)],
                            options_.parts);
  if (!options_.shares.are_equal())
    return options_.shares.samples_before(rank,
                                          {first / options_.global_batch, first, end - first});
  return counted_before(rank, options_.world_size, end) -
         counted_before(rank, options_.world_size, first);
}

// The number of the rank's positions before `position`.
std::int64_t Sampler::own_before(std::int64_t position, int rank) const {
  const std::int64_t turn =
      options_.shard == Shard::kFile ? turns_[static_cast<std::size_t>(rank)] : rank;
  return turns_before(position, turn, options_.world_size);
}

std::int64_t Sampler::local_count(std::int64_t step) const {
  return local_count(step, options_.rank);
}

std::int64_t Sampler::local_count(std::int64_t step, int rank, std::int64_t taken) const {
  return slice(step, rank, taken).count;
}

std::int64_t Sampler::max_local_count() const {
  if (options_.shares_change) return max_changing_share(options_.global_batch, options_.world_size);
  if (options_.parts == 0 && !options_.shares.are_equal())
    return options_.shares.max_samples(options_.rank, options_.global_batch);
  // With few samples a part may have one more than with many, because its bounds are rounded.
  // Counts of full steps repeat after at most world_size steps.
  std::int64_t highest = local_count(steps_per_epoch() - 1);
  const std::int64_t steps = std::min<std::int64_t>(steps_per_epoch(), options_.world_size);
  for (std::int64_t step = 0; step < steps; ++step) highest = std::max(highest, local_count(step));
  return highest;
}

std::int64_t Sampler::max_part_count() const {
  return options_.parts == 0 ? max_local_count() : (options_.global_batch - 1) / options_.parts + 1;
}

// Checkpoints rely on these orders: a change breaks resuming in the middle of an epoch.
void Sampler::set_epoch(std::int64_t epoch, std::span<const Division> divisions) {
  const auto end = order_.begin() + options_.size;
  std::iota(order_.begin(), end, std::int64_t{0});
  if (options_.shard == Shard::kFile) return set_file_epoch(epoch, divisions);
  if (options_.order != nullptr)
    options_.order->fill(options_.seed, epoch,
                         std::span(order_).first(static_cast<std::size_t>(options_.size)));
  else if (options_.shuffle)
    shuffle(order_.begin(), end, SplitMix(options_.seed, static_cast<std::uint64_t>(epoch)));
  for (auto at = end; at != order_.end(); ++at)
    *at = *(at - options_.size);  // repeats from the front as often as necessary
  for (std::size_t i = 0; i < own_.size(); ++i) {
    own_[i] = order_[static_cast<std::size_t>(options_.rank) +
                     i * static_cast<std::size_t>(options_.world_size)];
  }
}

// The remaining samples at a division are order_[first, size), in the order of the data set. The
// number that a rank takes follows from the positions that count for it, as in an undivided epoch,
// so that the counts of steps do not depend on divisions.
void Sampler::set_file_epoch(std::int64_t epoch, std::span<const Division> divisions) {
  order_.resize(static_cast<std::size_t>(options_.size));
  for (std::size_t i = 0; i + 1 < divisions.size(); ++i)
    set_aside(epoch, divisions[i], divisions[i + 1].first);
  first_ = divisions.empty() ? 0 : divisions.back().first;
  FileShard own{first_, first_};
  std::int64_t start = first_;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const FileShard part{start, start + own_before(options_.size, rank) - own_before(first_, rank)};
    shuffle_part(epoch, first_, rank, part);
    if (rank == options_.rank) own = part;
    start = part.end;
  }
  const FileShard whole = file_shard(options_.size, options_.rank, options_.world_size);
  const std::int64_t before = own_before(first_, options_.rank), count = own.end - own.start;
  // Padding comes from the rank's own first samples; if it has none left, from its part of the data
  // set.
  for (std::int64_t i = before; i < std::ssize(own_); ++i)
    own_[static_cast<std::size_t>(i)] =
        count > 0 ? order_[static_cast<std::size_t>(own.start + (i - before) % count)]
                  : whole.start;
}

// Moves the samples that the ranks of `division` take up to position `end` before the others, which
// stay in the order of the data set.
void Sampler::set_aside(std::int64_t epoch, const Division& division, std::int64_t end) {
  std::vector<std::int64_t> taken, left;
  const std::vector<std::int64_t> turns = file_turns(options_.size, division.ranks);
  std::int64_t start = division.first;
  for (int rank = 0; rank < division.ranks; ++rank) {
    const auto before = [&](std::int64_t position) {
      return turns_before(position, turns[static_cast<std::size_t>(rank)], division.ranks);
    };
    const FileShard part{start, start + before(options_.size) - before(division.first)};
    shuffle_part(epoch, division.first, rank, part);
    const auto first = order_.begin() + part.start,
               next = first + before(end) - before(division.first);
    taken.insert(taken.end(), first, next);
    left.insert(left.end(), next, order_.begin() + part.end);
    start = part.end;
  }
  std::ranges::sort(left);
  std::ranges::copy(left, std::ranges::copy(taken, order_.begin() + division.first).out);
}

void Sampler::shuffle_part(std::int64_t epoch, std::int64_t first, int rank, FileShard part) {
  if (!options_.shuffle) return;
  const auto stream = (static_cast<std::uint64_t>(first) << 20) + static_cast<std::uint64_t>(rank);
  shuffle(order_.begin() + part.start, order_.begin() + part.end,
          SplitMix(options_.seed, static_cast<std::uint64_t>(epoch), stream + 1));
}

void Sampler::set_shares(const BatchShares& shares) {
  if (!options_.shares_change) throw std::logic_error("a sampler whose shares do not change");
  check_shares(options_, shares);
  for (int rank = 0; !shares.are_equal() && rank < options_.world_size; ++rank)
    if (shares.max_samples(rank, options_.global_batch) > max_local_count())
      throw ConfigError("rank " + std::to_string(rank) + " has " +
                        std::to_string(shares.max_samples(rank, options_.global_batch)) +
                        " samples of a step with the shares " + shares.text() +
                        ", expected at most " + std::to_string(max_local_count()));
  options_.shares = shares;
}

std::span<const std::int64_t> Sampler::indices(std::int64_t step, std::int64_t taken) const {
  const Slice part = slice(step, options_.rank, taken);
  if (step * options_.global_batch + taken < first_)
    throw std::out_of_range("step " + std::to_string(step) + " of an epoch that is divided from " +
                            std::to_string(first_) + " samples on");
  const std::vector<std::int64_t>& from = options_.shard == Shard::kContiguous ? order_ : own_;
  return std::span(from).subspan(static_cast<std::size_t>(part.first),
                                 static_cast<std::size_t>(part.count));
}

}  // namespace io
