// Determines the coding of a training's samples: that of the checkpoint which it starts from, if
// any.
#pragma once

#include <memory>

#include "backends/group.h"
#include "tools/options/table/session_options.h"
#include "tools/run/data/session_data.h"

namespace tools {

// Collective. Returns the options of the data with the coding of the resumed checkpoint, or else of
// the one of --init-from; without a coding if neither states one, or if other options request
// another one. Options for reading tables apply to it (io::reading_with()): with --init-from those
// that are given, of a resumed run those that differ from its own. Throws io::ConfigError if other
// columns are requested than those of --init-from; also throws as reading the statement does.
DataOptions with_start_coding(const SessionOptions& options, backends::Communicator& control);

// Returns `before`, or null if it was read with another coding than these options have.
std::shared_ptr<LoadedData> coded_alike(std::shared_ptr<LoadedData> before,
                                        const DataOptions& options);

}  // namespace tools
