// Gathers the parts of a buffer that different ranks hold.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backends/communicator.h"
#include "engine/core/dtype.h"
#include "engine/optim/optimizer.h"
#include "engine/optim/optimizer_shards.h"

namespace engine {

// Gathers in pieces of a fixed size, so that it needs little memory for any parts.
class ShareGather {
 public:
  ShareGather(int world, DType dtype);

  // This rank's elements are the parts `own_parts` of `own`; the elements of rank r go to the parts
  // `parts[r]` of `whole`, which have the same size. If `whole` is null, this rank receives
  // nothing. `own` may be `whole` if own_parts are the parts of this rank. Collective. Does not
  // allocate.
  void gather(backends::Communicator& communicator, const void* own,
              std::span<const Elements> own_parts, std::span<const std::vector<Elements>> parts,
              void* whole);

 private:
  const std::size_t width_;
  std::vector<std::byte> piece_, pieces_;  // pieces of this rank and of all ranks
};

// Gathers the values after each rank has updated its shard. It is made before the communicator that
// it uses.
class ParameterGather {
 public:
  // The elements of `shares` beyond the first `trained` are already equal on all ranks.
  ParameterGather(const OptimizerShards& shares, std::int64_t trained, DType dtype);
  // Called before the first gather(); `communicator`, which has all ranks, must outlive this.
  void connect(backends::Communicator& communicator) { communicator_ = &communicator; }
  void gather(const FlatBuffer& values);

 private:
  const int rank_;
  std::vector<std::vector<Elements>> parts_;
  ShareGather pieces_;
  backends::Communicator* communicator_ = nullptr;
};

// Returns an optimizer that runs `share`, which updates this rank's shard, and then `gather`, which
// must outlive it: the update is the same on every rank. step() is collective.
std::unique_ptr<Optimizer> with_gathering(std::unique_ptr<Optimizer> share,
                                          ParameterGather& gather);

}  // namespace engine
