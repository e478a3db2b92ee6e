// Implements collectives on tensors: what the library reduces itself, and what is folded here.
#include "tools/api/torch/tensor_calls.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>

#include <cstddef>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "tools/api/torch/call_purpose.h"
#include "tools/api/torch/message_batch.h"

namespace engine::pytorch {
namespace {

using Op = c10d::ReduceOp::RedOpType;

constexpr std::uint64_t kExchangeTag = 1ULL << 32;

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}
std::span<std::byte> writable_bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

// Gives a tensor's elements as contiguous memory: its own, or a copy, which store() writes back.
class Contiguous {
 public:
  explicit Contiguous(const at::Tensor& tensor) : tensor_(tensor), memory_(tensor.contiguous()) {}
  const at::Tensor& memory() const { return memory_; }
  void store() const {
    if (!memory_.is_same(tensor_)) tensor_.copy_(memory_);
  }

 private:
  const at::Tensor tensor_, memory_;
};

// The types that the library reduces; others are reduced as 64-bit integers, whose lower bits are
// theirs.
std::optional<api::ElementType> element_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return api::ElementType::kF32;
    case at::kDouble:
      return api::ElementType::kF64;
    case at::kLong:
      return api::ElementType::kI64;
    case at::kHalf:
      return api::ElementType::kF16;
    case at::kBFloat16:
      return api::ElementType::kBF16;
    case at::kByte:
      return api::ElementType::kU8;
    default:
      return std::nullopt;
  }
}

std::optional<api::Reduction> reduction(Op op) {
  switch (op) {
    case Op::SUM:
    case Op::AVG:
      return api::Reduction::kSum;
    case Op::MAX:
      return api::Reduction::kMax;
    case Op::MIN:
      return api::Reduction::kMin;
    default:
      return std::nullopt;
  }
}

// Returns the purpose of a reduction: the type, operation and destination that the library's own
// call does not show.
std::uint16_t reduction_purpose(const at::Tensor& tensor, Op op, int destination = -1) {
  const at::ScalarType type = tensor.scalar_type();
  return purpose_of(element_type(type) && reduction(op) ? at::ScalarType::Undefined : type, op,
                    destination);
}

bool is_bitwise(Op op) { return op == Op::BAND || op == Op::BOR || op == Op::BXOR; }

void fold_into(const at::Tensor& sum, const at::Tensor& next, Op op) {
  at::Tensor into = sum;
  switch (op) {
    case Op::PRODUCT:
      into.mul_(next);
      return;
    case Op::BAND:
      into.bitwise_and_(next);
      return;
    case Op::BOR:
      into.bitwise_or_(next);
      return;
    case Op::BXOR:
      into.bitwise_xor_(next);
      return;
    default:
      TORCH_INTERNAL_ASSERT(false, "no such reduction");
  }
}

// A complex tensor as pairs of real numbers, which are summed alike.
at::Tensor as_numbers(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

}  // namespace

void require_cpu(const at::Tensor& tensor, const char* call) {
  TORCH_CHECK_VALUE(tensor.defined() && tensor.layout() == at::kStrided && tensor.device().is_cpu(),
                    "engine, ", call, ": invalid tensor: expected a dense one of the CPU, found ",
                    tensor.defined() ? tensor.toString() : "none",
                    " (for CUDA: init_process_group(\"cpu:engine,cuda:nccl\"))");
}

void require_reducible(const at::Tensor& tensor, c10d::ReduceOp reduce_op, const char* call) {
  const Op op = reduce_op;
  require_cpu(tensor, call);
  const at::ScalarType type = tensor.scalar_type();
  const bool integral = at::isIntegralType(type, /*includeBool=*/true);
  const bool number =
      element_type(type) || integral || type == at::kComplexFloat || type == at::kComplexDouble;
  TORCH_CHECK_TYPE(number, "engine, ", call, ": invalid tensor type ", type);
  TORCH_CHECK_VALUE(op != Op::PREMUL_SUM && op != Op::UNUSED, "engine, ", call,
                    ": invalid reduction: expected SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR or BXOR");
  TORCH_CHECK_VALUE(integral || !is_bitwise(op), "engine, ", call,
                    ": Cannot use ReduceOp.BAND, BOR or BXOR with non-integral dtype ", type);
  TORCH_CHECK_VALUE(!integral || op != Op::AVG, "engine, ", call,
                    ": Cannot use ReduceOp.AVG with integral dtype ", type);
  TORCH_CHECK_VALUE(!tensor.is_complex() || op == Op::SUM || op == Op::AVG, "engine, ", call,
                    ": a complex tensor has only ReduceOp.SUM and AVG");
}

void require_writable(const at::Tensor& tensor, const char* call) {
  TORCH_CHECK_VALUE(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, "engine, ", call,
                    ": elements of the tensor share memory, as expand() makes them: expected one "
                    "whose elements have memory of their own, e.g. its clone()");
}

void TensorCalls::barrier() {
  communicator_.purpose = 0;
  communicator_.barrier();
}

void TensorCalls::broadcast(const at::Tensor& tensor, int root) {
  communicator_.purpose = purpose_of(tensor.scalar_type());
  const Contiguous values(tensor);
  communicator_.broadcast_bytes(writable_bytes_of(values.memory()), root);
  if (rank() != root) values.store();
}

void TensorCalls::all_reduce(const at::Tensor& tensor, c10d::ReduceOp op, int destination) {
  communicator_.purpose = reduction_purpose(tensor, op, destination);
  const at::Tensor numbers = as_numbers(tensor);
  const Contiguous values(numbers);
  const at::Tensor flat = values.memory().view({-1});
  const at::Tensor sum = reduced(flat, op);
  if (!sum.is_same(flat)) flat.copy_(sum);
  values.store();
}

// Returns the reduction of contiguous numbers: `flat` itself where the library reduces in place.
at::Tensor TensorCalls::reduced(const at::Tensor& flat, c10d::ReduceOp op) {
  const auto way = reduction(op);
  if (!way) {
    const std::int64_t count = flat.numel(), part = (count + size() - 1) / size();
    at::Tensor padded = at::zeros({part * size()}, flat.options());
    padded.narrow(0, 0, count).copy_(flat);
    const at::Tensor own = folded_part(padded, op);
    communicator_.all_gather_bytes(bytes_of(own), writable_bytes_of(padded));
    return padded.narrow(0, 0, count);
  }
  const auto type = element_type(flat.scalar_type());
  if (!type) {
    const at::Tensor wide = flat.to(at::kLong);
    communicator_.all_reduce(wide.mutable_data_ptr(), static_cast<std::size_t>(wide.numel()),
                             api::ElementType::kI64, *way);
    return wide;
  }
  communicator_.all_reduce(flat.mutable_data_ptr(), static_cast<std::size_t>(flat.numel()), *type,
                           *way);
  if (op == Op::AVG) at::Tensor(flat).div_(size());
  return flat;
}

// Returns this rank's one of size() equal parts of the reduction; may change `flat`.
at::Tensor TensorCalls::reduced_part(const at::Tensor& flat, c10d::ReduceOp op) {
  const auto way = reduction(op);
  if (!way) return folded_part(flat, op);
  const auto type = element_type(flat.scalar_type());
  const at::Tensor numbers = type ? flat : flat.to(at::kLong);
  communicator_.reduce_scatter(numbers.mutable_data_ptr(),
                               static_cast<std::size_t>(numbers.numel()),
                               type.value_or(api::ElementType::kI64), *way);
  const std::int64_t count = flat.numel() / size();
  const at::Tensor part = numbers.narrow(0, rank() * count, count);
  if (op == Op::AVG) at::Tensor(part).div_(size());
  return part;
}

// The same for reductions that the library does not have, folded in rank order.
at::Tensor TensorCalls::folded_part(const at::Tensor& flat, c10d::ReduceOp op) {
  const at::Tensor theirs = at::empty_like(flat);
  communicator_.all_to_all(bytes_of(flat), writable_bytes_of(theirs));
  const std::int64_t count = flat.numel() / size();
  const at::Tensor sum = theirs.narrow(0, 0, count).clone();
  for (int r = 1; r < size(); ++r) fold_into(sum, theirs.narrow(0, r * count, count), op);
  return sum;
}

void TensorCalls::all_reduce_coalesced(const Tensors& tensors, c10d::ReduceOp op) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  const at::Tensor all = at::cat(flat);
  all_reduce(all, op);
  std::int64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.copy_(all.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

void TensorCalls::reduce(const at::Tensor& tensor, int root, c10d::ReduceOp op) {
  all_reduce(rank() == root ? tensor : tensor.clone(at::MemoryFormat::Contiguous), op, root);
}

void TensorCalls::all_gather(const at::Tensor& output, const at::Tensor& input) {
  communicator_.purpose = purpose_of(input.scalar_type());
  const Contiguous all(output);
  communicator_.all_gather_bytes(bytes_of(input.contiguous()), writable_bytes_of(all.memory()));
  all.store();
}

void TensorCalls::all_gather(const Tensors& outputs, const at::Tensor& input) {
  const at::Tensor all = at::empty({size(), input.numel()}, input.options());
  all_gather(all, input);
  for (int r = 0; r < size(); ++r) {
    const at::Tensor& output = outputs[static_cast<std::size_t>(r)];
    output.copy_(all[r].view(output.sizes()));
  }
}

void TensorCalls::reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                 c10d::ReduceOp op) {
  communicator_.purpose = reduction_purpose(input, op);
  // The input must not change.
  const at::Tensor numbers = as_numbers(input).clone(at::MemoryFormat::Contiguous).view({-1});
  const at::Tensor part = reduced_part(numbers, op);
  const at::Tensor target = as_numbers(output);
  target.copy_(part.view(target.sizes()));
}

void TensorCalls::reduce_scatter(const at::Tensor& output, const Tensors& inputs,
                                 c10d::ReduceOp op) {
  communicator_.purpose = reduction_purpose(output, op);
  std::vector<at::Tensor> flat;
  for (const at::Tensor& input : inputs) flat.push_back(input.reshape({-1}));
  const at::Tensor part = reduced_part(as_numbers(at::cat(flat)).reshape({-1}), op);
  const at::Tensor target = as_numbers(output);
  target.copy_(part.view(target.sizes()));
}

// Sends inputs[r] to rank r and receives outputs[r] from it; undefined tensors: neither.
void TensorCalls::exchange(const Tensors& outputs, const Tensors& inputs) {
  const std::uint64_t tag = kExchangeTag + (exchanges_++ & 0xffffffff);
  std::vector<Contiguous> received;
  std::vector<at::Tensor> sent;
  received.reserve(outputs.size());
  MessageBatch batch;
  const auto post = [&](const auto& pass) {
    api::Messages::Done done = batch.expect();
    try {
      pass(std::move(done));
    } catch (...) {
      batch.forget();
      throw;
    }
  };
  for (int step = 1; step < size(); ++step) {
    const int to = (rank() + step) % size(), from = (rank() - step + size()) % size();
    const at::Tensor& output = outputs[static_cast<std::size_t>(from)];
    const at::Tensor& input = inputs[static_cast<std::size_t>(to)];
    if (output.defined()) {
      received.emplace_back(output);
      post([&](api::Messages::Done done) {
        messages_->receive(writable_bytes_of(received.back().memory()), from, tag, timeout_,
                           std::move(done), kind_of(output.scalar_type()));
      });
    }
    if (input.defined()) {
      sent.push_back(input.contiguous());
      post([&](api::Messages::Done done) {
        messages_->send(bytes_of(sent.back()), to, tag, timeout_, std::move(done),
                        kind_of(input.scalar_type()));
      });
    }
  }
  batch.wait();
  for (const Contiguous& values : received) values.store();
  const auto own = static_cast<std::size_t>(rank());
  if (outputs[own].defined() && inputs[own].defined())
    outputs[own].copy_(inputs[own].reshape(outputs[own].sizes()));
}

void TensorCalls::gather(const Tensors& outputs, const at::Tensor& input, int root) {
  Tensors inputs(static_cast<std::size_t>(size()));
  inputs[static_cast<std::size_t>(root)] = input;
  exchange(outputs.empty() ? Tensors(inputs.size()) : outputs, inputs);
}

void TensorCalls::scatter(const at::Tensor& output, const Tensors& inputs, int root) {
  Tensors outputs(static_cast<std::size_t>(size()));
  outputs[static_cast<std::size_t>(root)] = output;
  exchange(outputs, inputs.empty() ? Tensors(outputs.size()) : inputs);
}

void TensorCalls::all_to_all(const Tensors& outputs, const Tensors& inputs) {
  exchange(outputs, inputs);
}

void TensorCalls::all_to_all(const at::Tensor& output, const at::Tensor& input,
                             const std::vector<std::int64_t>& output_rows,
                             const std::vector<std::int64_t>& input_rows) {
  communicator_.purpose = purpose_of(input.scalar_type());
  // The ranks agree on the way: what is even here may not be so elsewhere.
  std::int64_t uneven = output_rows.empty() && input_rows.empty() ? 0 : 1;
  communicator_.all_reduce(&uneven, 1, api::ElementType::kI64, api::Reduction::kMax);
  if (uneven == 0) {
    const Contiguous all(output);
    communicator_.all_to_all(bytes_of(input.contiguous()), writable_bytes_of(all.memory()));
    return all.store();
  }
  const auto parts = [&](const at::Tensor& whole, const std::vector<std::int64_t>& rows) {
    const std::int64_t each = rows.empty() ? whole.size(0) / size() : 0;
    const std::vector<std::int64_t> equal(static_cast<std::size_t>(size()), each);
    return whole.split_with_sizes(rows.empty() ? equal : rows);
  };
  const Contiguous all(output);
  exchange(parts(all.memory(), output_rows), parts(input.contiguous(), input_rows));
  all.store();
}

}  // namespace engine::pytorch
