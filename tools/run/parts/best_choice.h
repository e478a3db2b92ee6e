// Makes what a run saves beside its last weights: the best model, and averages over epochs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/train/best_model.h"
#include "engine/train/weight_average.h"
#include "tools/run/parts/session_model.h"

namespace tools {

// Returns null if no best model is requested. Throws io::ConfigError if there is no evaluation for
// it, and for a measure that the data do not have.
std::unique_ptr<engine::BestModel> make_best_model(const SessionSetting& setting,
                                                   const std::string& test_digest);

// Returns null if there is none. `recompute_statistics` as in engine::EpochAverageOptions. Throws
// io::ConfigError for more epochs than there are, and for options that a CUDA device does not
// support.
std::unique_ptr<engine::EpochAverage> make_epoch_average(
    const SessionSetting& setting, SessionModel& model,
    std::function<void(std::int64_t epoch)> recompute_statistics);

}  // namespace tools
