// Blocks of samples that the ranks of a group predict in turns, and rank 0 writes in order.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "backends/group.h"
#include "io/data/samples/sample_stream.h"

namespace tools {

struct PredictedBlock {
  std::vector<io::SampleBlock::Origin> origins;  // none: there are no more blocks
  std::vector<double> logits;                    // sample by sample, as `watched`
  std::vector<float> watched;                    // what else is wanted of the model
};

struct BlockSizes {
  std::size_t samples = 1;              // of a block, at most
  std::size_t logits = 0, watched = 0;  // numbers of a sample
};

// Collective over the group, by way of `control`. All ranks walk through the same blocks: next(own)
// takes one, with its numbers where it is this rank's, else with its origins alone. On rank 0
// write(block) is called for each, in order. A block for each rank is in memory, on all of them.
// Where next() or write() throws, the blocks before have been written, and all ranks end as
// run_on_all_ranks() has it. Throws io::DataError, on rank 0, where a rank's block has other
// samples than rank 0 sees in it.
void predict_distributed(const backends::Group& group, backends::Communicator& control,
                         const BlockSizes& sizes,
                         const std::function<PredictedBlock(bool own)>& next,
                         const std::function<void(const PredictedBlock& block)>& write);

}  // namespace tools
