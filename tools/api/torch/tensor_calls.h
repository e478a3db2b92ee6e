// The collectives of torch.distributed on tensors of the CPU, made of those of the library.
//
// Tensors may have any strides: those that are not contiguous are copied, in the order of their
// elements. All ranks make the same calls in the same order.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/collectives.h"

namespace engine::pytorch {

using Tensors = std::vector<at::Tensor>;

// Throws a TypeError or ValueError in Python for a tensor or an operation that is not supported.
void require_cpu(const at::Tensor& tensor, const char* call);
void require_reducible(const at::Tensor& tensor, c10d::ReduceOp op, const char* call);
// The same for a tensor of which several elements share memory, so that it cannot be written.
void require_writable(const at::Tensor& tensor, const char* call);

// One caller at a time.
class TensorCalls {
 public:
  // `messages`: nullptr in a group of one rank. Both outlive this.
  TensorCalls(api::Communicator& communicator, api::Messages* messages)
      : communicator_(communicator), messages_(messages) {}
  // Limits how long the messages of the following calls may take.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  void barrier();
  void broadcast(const at::Tensor& tensor, int root);
  void all_reduce(const at::Tensor& tensor, c10d::ReduceOp op) { all_reduce(tensor, op, -1); }
  // As one reduction, if the tensors have one type.
  void all_reduce_coalesced(const Tensors& tensors, c10d::ReduceOp op);
  // Only the root's tensor changes.
  void reduce(const at::Tensor& tensor, int root, c10d::ReduceOp op);
  // `output` has size() times as many elements as `input`.
  void all_gather(const at::Tensor& output, const at::Tensor& input);
  void all_gather(const Tensors& outputs, const at::Tensor& input);
  // `input` has size() times as many elements as `output`.
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, c10d::ReduceOp op);
  void reduce_scatter(const at::Tensor& output, const Tensors& inputs, c10d::ReduceOp op);
  // `outputs` and `inputs` are empty except on the root.
  void gather(const Tensors& outputs, const at::Tensor& input, int root);
  void scatter(const at::Tensor& output, const Tensors& inputs, int root);
  void all_to_all(const Tensors& outputs, const Tensors& inputs);
  // Rows of the first dimension per rank; empty: equally many.
  void all_to_all(const at::Tensor& output, const at::Tensor& input,
                  const std::vector<std::int64_t>& output_rows,
                  const std::vector<std::int64_t>& input_rows);
  // Rank 0 waits for all other ranks, names those that do not come, and then lets the others go on.
  void monitored_barrier(std::chrono::milliseconds timeout, bool wait_for_all);

 private:
  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.world_size(); }
  void all_reduce(const at::Tensor& tensor, c10d::ReduceOp op, int destination);
  at::Tensor reduced(const at::Tensor& flat, c10d::ReduceOp op);
  at::Tensor reduced_part(const at::Tensor& flat, c10d::ReduceOp op);
  at::Tensor folded_part(const at::Tensor& flat, c10d::ReduceOp op);
  void exchange(const Tensors& outputs, const Tensors& inputs);

  api::Communicator& communicator_;
  api::Messages* const messages_;
  std::chrono::milliseconds timeout_{};
  std::uint64_t exchanges_ = 0;  // calls made of messages, which their tags count
  std::uint64_t monitored_barriers_ = 0;
};

// Tags of messages: those of the program, and those of calls made of messages.
inline std::uint64_t tag_of_program(int tag) { return static_cast<std::uint32_t>(tag); }

}  // namespace engine::pytorch
