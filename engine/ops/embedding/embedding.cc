// Checks and dispatches embeddings.
#include "engine/ops/embedding/embedding.h"

#include <string>

#include "engine/core/cuda.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/embedding/embedding_cpu.h"
#include "engine/ops/embedding/embedding_cuda.h"
#include "engine/ops/embedding/embedding_reference.h"
#include "engine/ops/embedding/token_error.h"

namespace engine::ops {
namespace {

const EmbeddingTable& fast() { return isa_table_of_embedding_table(); }

void check_rank(const char* kernel, const char* operand, const TensorView& view, int rank,
                const char* meaning) {
  if (view.shape.rank() != rank)
    throw ShapeError(std::string(kernel) + ": " + operand + " has the shape " +
                     view.shape.to_string() + ", expected " + meaning);
}

EmbeddingSizes check_embedding(const char* kernel, const KernelContext& context,
                               const TensorView& tokens, const TensorView& table,
                               const TensorView& y, DType y_dtype) {
  check_dtype(kernel, "tokens", tokens, DType::kI32);
  check_rank(kernel, "tokens", tokens, 2, "[n, t]");
  check_floating(kernel, "the table", table);
  check_rank(kernel, "the table", table, 2, "[vocabulary, width]");
  check_dtype(kernel, "y", y, y_dtype);
  check_shape(kernel, "y", y, {tokens.shape[0], tokens.shape[1], table.shape[1]});
  check_context(kernel, context);
  return embedding_sizes(tokens, table);
}

void check_tokens(const TensorView& tokens, std::int64_t vocabulary) {
  const std::int32_t* id = tokens.as<std::int32_t>();
  for (std::int64_t p = 0; p < tokens.count(); ++p) {
    if (id[p] >= 0 && id[p] < vocabulary) continue;
    throw TokenError({.token = id[p],
                      .vocabulary = vocabulary,
                      .row = p / tokens.shape[1],
                      .position = p % tokens.shape[1]});
  }
}

// Returns the number of elements of a sample.
std::int64_t check_positions(const char* kernel, const KernelContext& context, const TensorView& x,
                             const TensorView& positions, DType positions_dtype) {
  check_floating(kernel, "x", x);
  check_rank(kernel, "x", x, 3, "[n, t, width]");
  check_dtype(kernel, "positions", positions, positions_dtype);
  check_rank(kernel, "positions", positions, 2, "[context, width]");
  if (positions.shape[0] < x.shape[1] || positions.shape[1] != x.shape[2])
    throw ShapeError(std::string(kernel) + ": positions have the shape " +
                     positions.shape.to_string() + ", expected at least " +
                     Shape{x.shape[1], x.shape[2]}.to_string());
  check_context(kernel, context);
  return x.shape[1] * x.shape[2];
}

}  // namespace

std::size_t embedding_scratch_bytes(std::int64_t places, std::int64_t vocabulary,
                                    Device::Kind device) {
  return dispatch_device(
      device, [] { return std::size_t{0}; },
      [&] { return cuda::embedding_scratch_bytes(places, vocabulary); });
}

void embedding_forward(KernelContext& context, const EmbeddingForward& o) {
  const EmbeddingSizes s =
      check_embedding("embedding_forward", context, o.tokens, o.table, o.y, o.table.dtype);
  // On a CUDA device the kernel checks the tokens.
  if (!on_cuda(context)) check_tokens(o.tokens, s.vocabulary);
  dispatch(
      context, o.table.dtype, [&] { reference::embedding_forward<double>(o); },
      [&] { fast().forward(o, s, *context.threads); },
      [&] { cuda::embedding_forward(context, o); });
}

void embedding_backward(KernelContext& context, const EmbeddingBackward& o) {
  constexpr const char* kName = "embedding_backward";
  check_floating(kName, "dy", o.dy);
  check_dtype(kName, "dtable", o.dtable, wide_dtype(o.dy.dtype));
  const EmbeddingSizes s = check_embedding(kName, context, o.tokens, o.dtable, o.dy, o.dy.dtype);
  check_context(kName, context,
                embedding_scratch_bytes(s.places, s.vocabulary, context.device.kind));
  dispatch(
      context, o.dy.dtype, [&] { reference::embedding_backward<double>(o); },
      [&] { fast().backward(o, s, *context.threads); },
      [&] { cuda::embedding_backward(context, o); });
}

void add_positions_forward(KernelContext& context, TensorView x, TensorView positions,
                           TensorView y) {
  const std::int64_t item =
      check_positions("add_positions_forward", context, x, positions, x.dtype);
  check_like("add_positions_forward", "y", y, x);
  dispatch(
      context, x.dtype,
      [&] {
        reference::add_positions_forward(x.as<double>(), x.shape[0], item, positions.as<double>(),
                                         y.as<double>());
      },
      [&] {
        fast().add_positions_forward(x.as<float>(), x.shape[0], item, positions.as<float>(),
                                     y.as<float>(), *context.threads);
      },
      [&] { cuda::add_positions_forward(context, x, positions, y); });
}

void add_positions_backward(KernelContext& context, TensorView dy, TensorView dpositions,
                            Write write) {
  const std::int64_t n = dy.shape[0], item = check_positions("add_positions_backward", context, dy,
                                                             dpositions, wide_dtype(dy.dtype));
  dispatch(
      context, dy.dtype,
      [&] {
        reference::add_positions_backward(dy.as<double>(), n, item, dpositions.count(),
                                          dpositions.as<double>(), write);
      },
      [&] {
        fast().add_positions_backward(dy.as<float>(), n, item, dpositions.count(),
                                      dpositions.as<float>(), write == Write::kAdd,
                                      *context.threads);
      },
      [&] { cuda::add_positions_backward(context, dy, dpositions, write); });
}

}  // namespace engine::ops
