// Distributes blocks of samples over the ranks of a group for prediction; rank 0 writes them in
// order.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "backends/group.h"
#include "io/data/samples/sample_stream.h"

namespace tools {

struct PredictedBlock {
  std::vector<io::SampleBlock::Origin> origins;  // empty: there are no more blocks
  std::vector<double> logits;                    // by sample, like `watched`
  std::vector<float> watched;                    // other values of the model that are requested
};

struct BlockSizes {
  std::size_t samples = 1;              // maximum per block
  std::size_t logits = 0, watched = 0;  // numbers per sample
};

// Collective over the group, through `control`. All ranks traverse the same blocks: next(own)
// returns one, with its numbers if it belongs to this rank, else only with its origins. On rank 0
// write(block) is called for each, in order. One block per rank is in memory, on all ranks. If
// next() or write() throws, the preceding blocks have been written, and all ranks fail as in
// run_on_all_ranks(). Throws io::DataError, on rank 0, if a rank's block has other samples than
// rank 0 expects.
void predict_distributed(const backends::Group& group, backends::Communicator& control,
                         const BlockSizes& sizes,
                         const std::function<PredictedBlock(bool own)>& next,
                         const std::function<void(const PredictedBlock& block)>& write);

}  // namespace tools
