// Decides the ranks' shares of a step from the speed of each rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/train/saving/stateful.h"
#include "io/data/order/batch_shares.h"

namespace engine {

// The work of one rank in some steps: its samples, and its time without waiting for other ranks.
// Sent as raw memory.
struct MeasuredWork {
  double samples = 0, seconds = 0;

  MeasuredWork& operator+=(const MeasuredWork& other) {
    samples += other.samples;
    seconds += other.seconds;
    return *this;
  }
};

struct ShareBalanceOptions {
  int ranks = 1;
  std::int64_t min_steps = 4;  // of a measurement
  // Minimum time that the slowest rank has worked in the first measurement, and in later ones.
  double first_seconds = 0.2, later_seconds = 1;
};

// All ranks pass the same measurements in the same order, and so decide alike. The first step, and
// the first one after a change, are not measured: they allocate memory and wait for data.
class ShareBalance final : public Stateful {
 public:
  explicit ShareBalance(const ShareBalanceOptions& options);

  const io::BatchShares& shares() const { return shares_; }  // those in force
  // Adds this rank's work in the step just done.
  void add_step(const MeasuredWork& work);
  // Returns this rank's work since the last measurement.
  const MeasuredWork& measured() const { return measured_; }
  // Decides by measured() of all ranks. Returns true if the shares have changed, by more than a
  // tenth of its share for at least one rank.
  bool update(std::span<const MeasuredWork> ranks);
  // Returns the samples per second of each rank that the last change was based on; empty: none yet.
  std::span<const double> speeds() const { return decided_; }

  // Stores counters "shares.*": the weights in force, unless shares are equal. A checkpoint of
  // another number of ranks makes them equal.
  void capture(StateCopy& copy) const override;
  void restore(const io::Checkpoint& checkpoint, const std::string& source,
               const std::function<void(const std::string&)>& notice) override;

 private:
  bool is_complete(std::span<const MeasuredWork> ranks) const;
  bool has_moved(const io::BatchShares& shares) const;

  const ShareBalanceOptions options_;
  io::BatchShares shares_;
  MeasuredWork measured_;
  std::int64_t steps_ = -1;      // measured steps; -1: the next one is not measured
  std::vector<double> speeds_;   // last known samples per second of each rank; 0: none yet
  std::vector<double> decided_;  // speeds_ at the last change
};

// Returns shares in proportion to positive speeds, of which none exceeds io::kMaxShareRatio.
io::BatchShares shares_by_speed(std::span<const double> speeds);

}  // namespace engine
