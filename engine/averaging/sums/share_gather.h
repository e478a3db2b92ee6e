// Gathers the parts of a buffer that different ranks hold.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backends/communicator.h"
#include "backends/device_communicator.h"
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
  std::size_t width() const { return width_; }  // bytes of an element

 private:
  const std::size_t width_;
  std::vector<std::byte> piece_, pieces_;  // pieces of this rank and of all ranks
};

// Gathers the values after each rank has updated its shard. It is made before the communicators
// that it uses, which have all ranks and must outlive it.
class ParameterGather {
 public:
  // The elements of `shares` beyond the first `trained` are already equal on all ranks.
  ParameterGather(const OptimizerShards& shares, std::int64_t trained, DType dtype);
  // Called before the first gather. Values on a device are gathered by `devices`; if it is null,
  // they pass through `mirror`, which has the same slots in host memory. Collective with `devices`:
  // the ranks compare the calls of a gather.
  void connect(backends::Communicator& communicator, const FlatBuffer& mirror,
               backends::DeviceCommunicator* devices);
  void gather(const FlatBuffer& values);
  // The same for values on a CUDA device, after the work on `stream` (cudaStream_t) so far. Later
  // work on it sees the result. By a DeviceCommunicator it only enqueues work, which can be
  // captured; otherwise it waits for the stream and the other ranks.
  void gather_on_device(void* stream, const FlatBuffer& values);

 private:
  // An all-gather of equal parts of all ranks, in rank order, or the broadcast of one part.
  struct DeviceCall {
    Elements all;
    int root;  // -1: an all-gather
  };
  void plan_device_calls();
  void gather_in_mirror(void* stream, const FlatBuffer& values);

  const int rank_;
  std::vector<std::vector<Elements>> parts_;
  ShareGather pieces_;
  backends::Communicator* communicator_ = nullptr;
  const FlatBuffer* mirror_ = nullptr;
  backends::DeviceCommunicator* devices_ = nullptr;
  std::vector<DeviceCall> device_calls_;
};

// Returns an optimizer that runs `share`, which updates this rank's shard, and then `gather`, which
// must outlive it: the update is the same on every rank. Steps are collective.
std::unique_ptr<Optimizer> with_gathering(std::unique_ptr<Optimizer> share,
                                          ParameterGather& gather);

}  // namespace engine
