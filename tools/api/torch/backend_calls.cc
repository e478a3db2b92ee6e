// Implements the calls of torch.distributed: checks their arguments, and passes them on.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <string>
#include <utility>

#include "tools/api/torch/backend_state.h"
#include "tools/api/torch/call_purpose.h"
#include "tools/api/torch/engine_backend.h"

namespace engine::pytorch {
namespace {

using c10d::OpType;

const at::Tensor& single(const Tensors& tensors, const char* call) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "engine, ", call,
                    ": requires a single-element tensor list, found ", tensors.size());
  return tensors.front();
}

void require_equal_type(const at::Tensor& tensor, const at::Tensor& other, const char* call) {
  require_cpu(tensor, call);
  TORCH_CHECK_TYPE(tensor.scalar_type() == other.scalar_type(), "engine, ", call,
                   ": invalid tensor type at index 0: expected ", other.scalar_type(), ", found ",
                   tensor.scalar_type());
}

void require_elements(const at::Tensor& tensor, std::int64_t elements, const char* call) {
  TORCH_CHECK_VALUE(tensor.numel() == elements, "engine, ", call,
                    ": invalid tensor size: expected ", elements, " elements, found ",
                    tensor.numel());
}

void require_all_writable(const Tensors& tensors, const char* call) {
  for (const at::Tensor& tensor : tensors) require_writable(tensor, call);
}

// Checks the list of one tensor per rank against the tensor that each of them corresponds to.
void require_list(const Tensors& list, const at::Tensor& part, int size, const char* call) {
  TORCH_CHECK_VALUE(list.size() == static_cast<std::size_t>(size), "engine, ", call,
                    ": requires a list with one tensor per rank: Incorrect list size ", list.size(),
                    ", expected ", size);
  require_cpu(part, call);
  for (const at::Tensor& tensor : list) {
    require_equal_type(tensor, part, call);
    require_elements(tensor, part.numel(), call);
  }
}

}  // namespace

void EngineBackend::require_rank(std::int64_t rank, const char* call, const char* what) const {
  TORCH_CHECK_VALUE(rank >= 0 && rank < getSize(), "engine, ", call, ": invalid ", what, ": ", rank,
                    ", expected 0..", getSize() - 1);
}

WorkPointer EngineBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const at::Tensor tensor = single(tensors, "broadcast");
  require_cpu(tensor, "broadcast");
  require_writable(tensor, "broadcast");
  require_rank(opts.rootRank, "broadcast", "root rank");
  TORCH_CHECK_VALUE(opts.rootTensor == 0,
                    "engine, broadcast: invalid root tensor: ", opts.rootTensor, ", expected 0");
  const int root = static_cast<int>(opts.rootRank);
  return run({OpType::BROADCAST, "engine:broadcast", opts.timeout, opts.asyncOp}, tensors, tensors,
             [=](TensorCalls& calls) { calls.broadcast(tensor, root); });
}

WorkPointer EngineBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const at::Tensor tensor = single(tensors, "allreduce");
  require_reducible(tensor, opts.reduceOp, "allreduce");
  require_writable(tensor, "allreduce");
  return run({OpType::ALLREDUCE, "engine:all_reduce", opts.timeout, opts.asyncOp}, tensors, tensors,
             [tensor, op = opts.reduceOp](TensorCalls& calls) { calls.all_reduce(tensor, op); });
}

WorkPointer EngineBackend::allreduce_coalesced(Tensors& tensors,
                                               const c10d::AllreduceCoalescedOptions& opts) {
  TORCH_CHECK_VALUE(!tensors.empty(),
                    "engine, allreduce_coalesced: requires non-empty tensor list");
  for (const at::Tensor& tensor : tensors) {
    require_reducible(tensor, opts.reduceOp, "allreduce_coalesced");
    require_writable(tensor, "allreduce_coalesced");
    TORCH_CHECK_TYPE(tensor.scalar_type() == tensors.front().scalar_type(),
                     "engine, allreduce_coalesced: tensors must all have the same type");
  }
  return run({OpType::ALLREDUCE_COALESCED, "engine:all_reduce", opts.timeout, opts.asyncOp},
             tensors, tensors, [tensors, op = opts.reduceOp](TensorCalls& calls) {
               calls.all_reduce_coalesced(tensors, op);
             });
}

WorkPointer EngineBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const at::Tensor tensor = single(tensors, "reduce");
  require_reducible(tensor, opts.reduceOp, "reduce");
  require_writable(tensor, "reduce");
  require_rank(opts.rootRank, "reduce", "root rank");
  TORCH_CHECK_VALUE(opts.rootTensor == 0, "engine, reduce: invalid root tensor: ", opts.rootTensor,
                    ", expected 0");
  const int root = static_cast<int>(opts.rootRank);
  return run({OpType::REDUCE, "engine:reduce", opts.timeout, opts.asyncOp}, tensors, tensors,
             [=, op = opts.reduceOp](TensorCalls& calls) { calls.reduce(tensor, root, op); });
}

WorkPointer EngineBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& opts) {
  const at::Tensor input = single(inputs, "allgather");
  TORCH_CHECK_VALUE(outputs.size() == 1, "engine, allgather: requires one list of outputs, found ",
                    outputs.size());
  const Tensors own = outputs.front();
  require_list(own, input, getSize(), "allgather");
  require_all_writable(own, "allgather");
  return run({OpType::ALLGATHER, "engine:all_gather", opts.timeout, opts.asyncOp}, inputs, own,
             [=](TensorCalls& calls) { calls.all_gather(own, input); });
}

WorkPointer EngineBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::AllgatherOptions& opts) {
  require_cpu(input, "_allgather_base");
  require_equal_type(output, input, "_allgather_base");
  require_elements(output, input.numel() * getSize(), "_allgather_base");
  require_writable(output, "_allgather_base");
  return run({OpType::_ALLGATHER_BASE, "engine:_all_gather_base", opts.timeout, opts.asyncOp},
             {input}, {output},
             [output, input](TensorCalls& calls) { calls.all_gather(output, input); });
}

WorkPointer EngineBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                               const c10d::AllgatherOptions& opts) {
  TORCH_CHECK_VALUE(!inputs.empty() && outputs.size() == static_cast<std::size_t>(getSize()),
                    "engine, allgather_coalesced: output lists should be one per rank, found ",
                    outputs.size());
  Tensors all;
  std::vector<Tensors> per_input(inputs.size());
  for (const Tensors& of_rank : outputs) {
    TORCH_CHECK_VALUE(of_rank.size() == inputs.size(),
                      "engine, allgather_coalesced: invalid output size: expected ", inputs.size(),
                      " tensors, found ", of_rank.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) per_input[i].push_back(of_rank[i]);
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  for (std::size_t i = 0; i < inputs.size(); ++i)
    require_list(per_input[i], inputs[i], getSize(), "allgather_coalesced");
  require_all_writable(all, "allgather_coalesced");
  return run({OpType::ALLGATHER_COALESCED, "engine:all_gather", opts.timeout, opts.asyncOp}, inputs,
             all, [inputs, per_input](TensorCalls& calls) {
               for (std::size_t i = 0; i < inputs.size(); ++i)
                 calls.all_gather(per_input[i], inputs[i]);
             });
}

WorkPointer EngineBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& opts) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(),
                    "engine, allgather_into_tensor_coalesced: found ", outputs.size(),
                    " outputs for ", inputs.size(), " inputs");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require_cpu(inputs[i], "allgather_into_tensor_coalesced");
    require_equal_type(outputs[i], inputs[i], "allgather_into_tensor_coalesced");
    require_elements(outputs[i], inputs[i].numel() * getSize(), "allgather_into_tensor_coalesced");
  }
  require_all_writable(outputs, "allgather_into_tensor_coalesced");
  return run({OpType::ALLGATHER_INTO_TENSOR_COALESCED, "engine:_all_gather_base", opts.timeout,
              opts.asyncOp},
             inputs, outputs, [outputs, inputs](TensorCalls& calls) {
               for (std::size_t i = 0; i < inputs.size(); ++i)
                 calls.all_gather(outputs[i], inputs[i]);
             });
}

WorkPointer EngineBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                  const c10d::GatherOptions& opts) {
  const at::Tensor input = single(inputs, "gather");
  require_cpu(input, "gather");
  require_rank(opts.rootRank, "gather", "root rank");
  const int root = static_cast<int>(opts.rootRank);
  Tensors own;
  if (getRank() == root) {
    TORCH_CHECK_VALUE(outputs.size() == 1,
                      "engine, gather: requires a single-element output list of lists, found ",
                      outputs.size());
    own = outputs.front();
    require_list(own, input, getSize(), "gather");
    require_all_writable(own, "gather");
  } else {
    TORCH_CHECK_VALUE(outputs.empty() || outputs.front().empty(),
                      "engine, gather: requires empty output on non-root");
  }
  return run({OpType::GATHER, "engine:gather", opts.timeout, opts.asyncOp}, inputs, own,
             [=](TensorCalls& calls) { calls.gather(own, input, root); });
}

WorkPointer EngineBackend::gather_single(at::Tensor& output, at::Tensor& input,
                                         const c10d::GatherOptions& opts) {
  std::vector<Tensors> outputs;
  if (getRank() == static_cast<int>(opts.rootRank)) {
    require_equal_type(output, input, "gather");
    require_elements(output, input.numel() * getSize(), "gather");
    TORCH_CHECK_VALUE(output.is_contiguous(), "engine, gather: the output must be contiguous");
    outputs.push_back(output.view({getSize(), input.numel()}).unbind(0));
  }
  Tensors inputs{input.reshape({-1})};
  return gather(outputs, inputs, opts);
}

WorkPointer EngineBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                   const c10d::ScatterOptions& opts) {
  const at::Tensor output = single(outputs, "scatter");
  require_cpu(output, "scatter");
  require_writable(output, "scatter");
  require_rank(opts.rootRank, "scatter", "root rank");
  const int root = static_cast<int>(opts.rootRank);
  Tensors own;
  if (getRank() == root) {
    TORCH_CHECK_VALUE(inputs.size() == 1,
                      "engine, scatter: requires a single-element input list of lists, found ",
                      inputs.size());
    own = inputs.front();
    require_list(own, output, getSize(), "scatter");
  } else {
    TORCH_CHECK_VALUE(inputs.empty() || inputs.front().empty(),
                      "engine, scatter: requires empty input on non-root");
  }
  return run({OpType::SCATTER, "engine:scatter", opts.timeout, opts.asyncOp}, own, outputs,
             [=](TensorCalls& calls) { calls.scatter(output, own, root); });
}

WorkPointer EngineBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                          const c10d::ReduceScatterOptions& opts) {
  const at::Tensor output = single(outputs, "reduce_scatter");
  require_reducible(output, opts.reduceOp, "reduce_scatter");
  TORCH_CHECK_VALUE(inputs.size() == 1,
                    "engine, reduce_scatter: requires one list of inputs, found ", inputs.size());
  const Tensors own = inputs.front();
  require_list(own, output, getSize(), "reduce_scatter");
  require_writable(output, "reduce_scatter");
  return run(
      {OpType::REDUCE_SCATTER, "engine:reduce_scatter", opts.timeout, opts.asyncOp}, own, outputs,
      [=, op = opts.reduceOp](TensorCalls& calls) { calls.reduce_scatter(output, own, op); });
}

WorkPointer EngineBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& opts) {
  Tensors outputs{output}, inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

WorkPointer EngineBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                           const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "engine, reduce_scatter: found ",
                    outputs.size(), " outputs for ", inputs.size(), " inputs");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require_reducible(outputs[i], opts.reduceOp, "reduce_scatter");
    require_equal_type(inputs[i], outputs[i], "reduce_scatter");
    require_elements(inputs[i], outputs[i].numel() * getSize(), "reduce_scatter");
  }
  require_all_writable(outputs, "reduce_scatter");
  const OpType type =
      inputs.size() == 1 ? OpType::_REDUCE_SCATTER_BASE : OpType::REDUCE_SCATTER_TENSOR_COALESCED;
  return run({type, "engine:_reduce_scatter_base", opts.timeout, opts.asyncOp}, inputs, outputs,
             [outputs, inputs, op = opts.reduceOp](TensorCalls& calls) {
               for (std::size_t i = 0; i < inputs.size(); ++i)
                 calls.reduce_scatter(outputs[i], inputs[i], op);
             });
}

WorkPointer EngineBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                    const c10d::AllToAllOptions& opts) {
  for (const Tensors* list : {&outputs, &inputs}) {
    TORCH_CHECK_VALUE(list->size() == static_cast<std::size_t>(getSize()),
                      "engine, alltoall: requires one tensor per rank, found ", list->size());
    for (const at::Tensor& tensor : *list) require_equal_type(tensor, outputs.front(), "alltoall");
  }
  const auto own = static_cast<std::size_t>(getRank());
  require_elements(outputs[own], inputs[own].numel(), "alltoall");
  require_all_writable(outputs, "alltoall");
  return run({OpType::ALLTOALL, "engine:all_to_all", opts.timeout, opts.asyncOp}, inputs, outputs,
             [outputs, inputs](TensorCalls& calls) { calls.all_to_all(outputs, inputs); });
}

WorkPointer EngineBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                         std::vector<std::int64_t>& output_rows,
                                         std::vector<std::int64_t>& input_rows,
                                         const c10d::AllToAllOptions& opts) {
  require_cpu(input, "alltoall_base");
  require_equal_type(output, input, "alltoall_base");
  require_writable(output, "alltoall_base");
  c10d::checkSplitSizes(input_rows, input, getSize());
  c10d::checkSplitSizes(output_rows, output, getSize());
  if (output_rows.empty() && input_rows.empty())
    require_elements(output, input.numel(), "alltoall_base");
  return run({OpType::ALLTOALL_BASE, "engine:all_to_all", opts.timeout, opts.asyncOp}, {input},
             {output},
             [=](TensorCalls& calls) { calls.all_to_all(output, input, output_rows, input_rows); });
}

WorkPointer EngineBackend::send(Tensors& tensors, int rank, int tag) {
  const at::Tensor tensor = single(tensors, "send");
  require_cpu(tensor, "send");
  require_rank(rank, "send", "destination rank");
  const std::shared_ptr<BackendState> state = live_state("send");
  const auto work = c10::make_intrusive<EngineWork>(
      EngineWork::Description{getRank(), OpType::SEND, "engine:send", ++sequence_,
                              options_->timeout, state->given_up},
      tensors, tensors);
  const at::Tensor memory = tensor.contiguous();
  state->links.messages().send(
      {static_cast<const std::byte*>(memory.const_data_ptr()), memory.nbytes()}, rank,
      tag_of_program(tag), options_->timeout,
      [work, memory, text = state->group_text, queue = state->queue](
          const std::exception_ptr& failure, int) {
        if (work->complete(distributed_error(failure, text)))
          queue->post_callbacks([work] { work->run_callbacks(); });
      },
      kind_of(tensor.scalar_type()));
  return work;
}

WorkPointer EngineBackend::recv(Tensors& tensors, int rank, int tag) {
  require_rank(rank, "recv", "source rank");
  return receive(tensors, rank, tag, {OpType::RECV, "engine:recv"});
}

WorkPointer EngineBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, api::Messages::kAnyRank, tag,
                 {OpType::RECVANYSOURCE, "engine:recvAnySource"});
}

WorkPointer EngineBackend::receive(Tensors& tensors, int rank, int tag, const CallKind& kind) {
  const at::Tensor tensor = single(tensors, "recv");
  require_cpu(tensor, "recv");
  require_writable(tensor, "recv");
  const std::shared_ptr<BackendState> state = live_state("recv");
  const auto work = c10::make_intrusive<EngineWork>(
      EngineWork::Description{getRank(), kind.type, kind.title, ++sequence_, options_->timeout,
                              state->given_up},
      Tensors{}, tensors);
  const at::Tensor memory = tensor.contiguous();
  state->links.messages().receive(
      {static_cast<std::byte*>(memory.mutable_data_ptr()), memory.nbytes()}, rank,
      tag_of_program(tag), options_->timeout,
      [work, tensor, memory, text = state->group_text, queue = state->queue](
          const std::exception_ptr& failure, int source) {
        const at::NoGradGuard no_grad;
        if (!failure && !memory.is_same(tensor)) tensor.copy_(memory);
        if (work->complete(distributed_error(failure, text), source))
          queue->post_callbacks([work] { work->run_callbacks(); });
      },
      kind_of(tensor.scalar_type()));
  return work;
}

WorkPointer EngineBackend::barrier(const c10d::BarrierOptions& opts) {
  return run({OpType::BARRIER, "engine:barrier", opts.timeout, opts.asyncOp}, {}, {},
             [](TensorCalls& calls) { calls.barrier(); });
}

void EngineBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_for_all) {
  TORCH_CHECK(opts.timeout.count() != 0 || getRank() != 0 || getSize() == 1,
              "Rank 0 timed out in monitoredBarrier: its timeout is 0 ms");
  live_state("monitored_barrier")->calls.monitored_barrier(timeout_of(opts.timeout), wait_for_all);
}

}  // namespace engine::pytorch
