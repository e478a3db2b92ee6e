// Parts that ranks have, brought together.
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

// In pieces of a fixed size, whatever the parts are: so it needs little memory.
class ShareGather {
 public:
  ShareGather(int world, DType dtype);

  // This rank's elements are the parts `own_parts` of `own`, and those of rank r go to the parts
  // `parts[r]` of `whole`, as many as it has; null: they are not wanted here. `own` may be `whole`,
  // with own_parts those of this rank. Collective. Does not allocate.
  void gather(backends::Communicator& communicator, const void* own,
              std::span<const Elements> own_parts, std::span<const std::vector<Elements>> parts,
              void* whole);

 private:
  const std::size_t width_;
  std::vector<std::byte> piece_, pieces_;  // of this rank, of all
};

// Gathers the values once each rank has updated its share of them. Made before the communicator
// that it uses.
class ParameterGather {
 public:
  // `shares`, of which elements beyond the first `trained` are equal on all ranks already.
  ParameterGather(const OptimizerShards& shares, std::int64_t trained, DType dtype);
  // Before the first gather(); `communicator`, of all ranks, outlives this.
  void connect(backends::Communicator& communicator) { communicator_ = &communicator; }
  void gather(const FlatBuffer& values);

 private:
  const int rank_;
  std::vector<std::vector<Elements>> parts_;
  ShareGather pieces_;
  backends::Communicator* communicator_ = nullptr;
};

// `share`, which updates this rank's share, and after it the gathering, which outlives the
// optimizer: together the same update on every rank. step() is collective.
std::unique_ptr<Optimizer> with_gathering(std::unique_ptr<Optimizer> share,
                                          ParameterGather& gather);

}  // namespace engine
