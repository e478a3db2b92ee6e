// Selects the weights of a checkpoint that a command uses: the model's, or an average of them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "io/checkpoint/array_source.h"
#include "io/checkpoint/checkpoint.h"
#include "tools/run/folder/run_reference.h"

namespace tools {

// Adds --weights model|ema|average; `weights` becomes the chosen value.
void add_weights_option(CLI::App& app, std::string& weights);

// Selects the checkpoint of a run's folder for these weights: the model's come from the best; an
// average comes from the newest, because the best was not chosen by it.
inline Snapshot snapshot_with(const std::string& weights) {
  return weights == "model" ? Snapshot::kBest : Snapshot::kNewest;
}

// Replaces the model's parameters (and associated values) by the average, and removes everything
// except these and the model's buffers. "model": changes nothing. Throws io::DataError if the
// checkpoint has no such average; `path` names the file.
void choose_weights(const std::string& weights, const std::string& path,
                    io::Checkpoint& checkpoint);

// Calls io::load_arrays() or, for a checkpoint, returns the result of choose_weights().
std::vector<io::NamedArray> load_weights(const std::string& weights, const std::string& path,
                                         std::vector<io::UnreadArray>* unread = nullptr);

}  // namespace tools
