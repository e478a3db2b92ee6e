// --stage: the data set on a disk of each host, copied there by one of its ranks.
#pragma once

#include "backends/group.h"
#include "io/data/sources/dataset.h"
#include "tools/options/run_config.h"

namespace tools {

// What load_dataset() is to read. Without --stage that is dataset_options(config). With it the
// lowest rank of each host copies what is missing, and the copies are read. Collective; the others
// wait as long as a collective may take (--timeout). Throws what io/data/loader/staging.h throws,
// and what a barrier throws.
io::DatasetOptions stage_dataset(const tools::RunConfig& config, const backends::Group& group,
                                 backends::Communicator& control);

}  // namespace tools
