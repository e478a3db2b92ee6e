// Which weights of a snapshot a command works with: the model's, or an average of them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "io/checkpoint/array_source.h"
#include "io/checkpoint/checkpoint.h"
#include "tools/run/folder/run_reference.h"

namespace tools {

// --weights model|ema|average; `weights` becomes what was chosen.
void add_weights_option(CLI::App& app, std::string& weights);

// Which snapshot of a run's folder they are taken from: the model's from the best, an average,
// which the best was not chosen by, from the newest.
inline Snapshot snapshot_with(const std::string& weights) {
  return weights == "model" ? Snapshot::kBest : Snapshot::kNewest;
}

// Puts the average in the place of the model's parameters (and of what else it has), and leaves
// nothing but these and the model's buffers. "model": changes nothing. Throws io::DataError where
// the snapshot has no such average; `path` stands for the file.
void choose_weights(const std::string& weights, const std::string& path,
                    io::Checkpoint& checkpoint);

// io::load_arrays(), or of a snapshot what choose_weights() makes of it.
std::vector<io::NamedArray> load_weights(const std::string& weights, const std::string& path,
                                         std::vector<io::UnreadArray>* unread = nullptr);

}  // namespace tools
