// A case of `engine bench kernels`: one call of an operator, with the operand shapes of a model.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/dtype.h"
#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"
#include "tools/bench/kernels/cublaslt.h"

namespace tools {

// How an operand is stored; on the CPU's float64 reference all of the first three are f64.
enum class Storage {
  kActivation,  // f32, on a CUDA device what --amp stores
  kVector,      // f32
  kSums,        // f64
  kIndex,       // i32 in [0, high)
  kByte,        // u8
};
enum class Use {
  kIn,
  kOut,
  kInOut,
  kPrepared,  // written by `prepare`, then read
  kSetup,     // for `prepare` alone
};

struct OperandSpec {
  engine::Shape shape;
  Storage storage = Storage::kActivation;
  Use use = Use::kIn;
  double low = -1, high = 1;
};

// A case that is one product of matrices, and which of its operands they are.
struct CaseProduct {
  PlainProduct shape;
  std::size_t a = 0, b = 1, c = 2;
};

// Some elements of the last operand, in float64: `at(i, j)` is element j of operand i.
struct Sample {
  std::size_t element = 0;
  double value = 0;
};
using Sampler =
    std::function<std::vector<Sample>(const std::function<double(std::size_t, std::size_t)>& at)>;

struct KernelCase {
  using Views = std::vector<engine::TensorView>;  // of `operands`, in their order
  using Call = std::function<void(engine::KernelContext& context, const Views& views)>;

  std::string op, model, shape;
  bool cuda = false;  // the operator has a kernel for CUDA devices
  double flops = 0;   // of a call; 0: bound by bytes alone
  double moved = 0;   // activations that it must read and write; 0: all of its operands
  std::vector<OperandSpec> operands;
  Call call;
  Call prepare = nullptr;  // once, before: what backward needs from forward
  std::function<std::size_t(engine::DType dtype, int threads, engine::Device::Kind device,
                            engine::Products products)>
      scratch_bytes = nullptr;
  std::optional<CaseProduct> product{};  // besides, at most a bias or its gradient
  Sampler sample = nullptr;  // instead of the whole result in float64, where that takes too long
};

// Images and texts in a batch.
struct BatchSizes {
  std::int64_t images = 32, texts = 8;
};
// The operators of the models at their shapes, in a fixed order: entry i is the same operator
// whatever the sizes.
std::vector<KernelCase> kernel_cases(const BatchSizes& sizes);

// The parts of it.
std::vector<KernelCase> dense_cases(const BatchSizes& sizes);
std::vector<KernelCase> convolution_cases(const BatchSizes& sizes);
std::vector<KernelCase> image_cases(
    const BatchSizes& sizes);  // normalization, pooling, activations
std::vector<KernelCase> text_cases(
    const BatchSizes& sizes);  // embedding, layer norm, gelu, attention
std::vector<KernelCase> training_cases(const BatchSizes& sizes);  // loss, optimizers

// Other sets, of the same names and shapes as in tests/peers/torch_kernels.py.
std::vector<KernelCase> square_cases(
    const std::vector<std::int64_t>& sides);  // products of two square matrices
std::vector<KernelCase> resnet_convolution_cases(const BatchSizes& sizes);

// "32x28x28x1"
std::string extents_text(const engine::Shape& shape);

}  // namespace tools
