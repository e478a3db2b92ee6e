// From options to what a run keeps besides its last weights: the best, and averages over epochs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "backends/group.h"
#include "engine/train/best_model.h"
#include "engine/train/weight_average.h"
#include "tools/run/session/session_parts.h"

namespace tools {

// Null where no best is sought. Throws io::ConfigError for what there is no evaluation for, and for
// a measure that the data have not.
std::unique_ptr<engine::BestModel> make_best_model(const SessionOptions& options,
                                                   const backends::Group& group,
                                                   const SessionData& data);

// Null where there is none. `recompute_statistics` as engine::EpochAverageOptions have it. Throws
// io::ConfigError for more epochs than there are, and for what a CUDA device cannot.
std::unique_ptr<engine::EpochAverage> make_epoch_average(
    const SessionOptions& options, const Compute& compute, const SessionData& data,
    SessionModel& model, std::function<void(std::int64_t epoch)> recompute_statistics);

}  // namespace tools
