// The names of the checkpoints in a run's folder, and the files `latest` and `best`, which contain
// one of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace io {

inline constexpr const char *kLatest = "latest", *kBest = "best";

// Returns the step of "step-00000600.ckpt"; nothing for any other name.
std::optional<std::int64_t> step_of_name(const std::string& name);

// Returns the path of the checkpoint of a step in a folder.
std::string checkpoint_path(const std::string& directory, std::int64_t step);

// Returns the step named in `latest` or `best`. It is data from a file: only a checkpoint's plain
// name is accepted. Throws Error if the file cannot be read: otherwise the best checkpoint would be
// pruned.
std::optional<std::int64_t> named_step(const std::string& directory, const char* which);

}  // namespace io
