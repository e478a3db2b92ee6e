// The coding of a training's samples: that of the snapshot which it starts from, if there is one.
#pragma once

#include <memory>

#include "backends/group.h"
#include "tools/options/table/session_options.h"
#include "tools/run/data/session_data.h"

namespace tools {

// Collective. Returns the options of the data with the coding of the snapshot that is resumed, or
// else of the one of --init-from; without a coding if neither states one, or if other options ask
// for another one. Throws
// io::ConfigError: other columns are asked for than those of --init-from; and what reading the
// statement throws.
DataOptions with_start_coding(const SessionOptions& options, backends::Communicator& control);

// `before`, unless it was read by another coding than these options have: then null.
std::shared_ptr<LoadedData> coded_alike(std::shared_ptr<LoadedData> before,
                                        const DataOptions& options);

}  // namespace tools
