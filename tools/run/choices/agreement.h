// Checks before the first step that every rank of a start could do its part, and that the ranks
// have the same options and data.
#pragma once

#include <functional>
#include <string>

#include "backends/group.h"
#include "backends/store/protocol/settings.h"
#include "engine/ops/common/kernel_context.h"
#include "io/data/dataset/splits.h"

namespace tools {

// `control`, here and below, is a communicator of all ranks of `group`. All functions are
// collective.

// Runs `work`, which waits for no other rank. All ranks return together or fail together: a rank
// whose own work failed throws that error, the others throw engine::RemoteError with the exit code
// and the text of the lowest rank that failed: "rank 1 (host b, pid 42): ...".
void run_on_all_ranks(const backends::Group& group, backends::Communicator& control,
                      const std::function<void()>& work);

// Throws engine::DesyncError on every rank unless all have the same names and values, which contain
// no line breaks and no tabs: "WHAT: NAME: rank 0 (host a, pid 1) has X, rank 1 (host b, pid 2) has
// Y; ...", for rank 0 and the first rank that differs from it.
void require_equal(const backends::Group& group, backends::Communicator& control,
                   const backends::Settings& own, const std::string& what);

// For require_equal(): the sizes of a data set, and digests of its contents. `digest`:
// data_digest() of the training part.
backends::Settings extent_of(const io::DatasetSplits& data);
backends::Settings content_of(const io::DatasetSplits& data, const std::string& digest);

// Returns "" if all ranks compute with the same instruction set; else a line that names the first
// two that do not, and the consequence.
std::string instruction_set_notice(const backends::Group& group, backends::Communicator& control,
                                   engine::Products products);

}  // namespace tools
