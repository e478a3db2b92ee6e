// --stage: the data set on a disk of each host, copied there by one of its ranks.
#pragma once

#include "backends/group.h"
#include "io/config/run_config.h"
#include "io/data/dataset.h"

namespace tools {

// What load_dataset() is to read. Without --stage that is dataset_options(config). With it the lowest rank of each host copies
// what is missing, and the copies are read. Collective; the others wait as long as a collective may take (--timeout). Throws what
// io/data/staging.h throws, and what a barrier throws.
io::DatasetOptions stage_dataset(const io::RunConfig& config, const backends::Group& group, backends::Communicator& control);

}  // namespace tools
