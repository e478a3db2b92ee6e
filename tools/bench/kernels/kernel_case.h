// Defines a case of `engine bench kernels`: one call of an operator, with the operand shapes of a
// model.
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

// The storage type of an operand; for the CPU's float64 reference the first three are f64.
enum class Storage {
  kActivation,  // f32; on a CUDA device the type that --amp stores
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

// Marks a case as one product of matrices, and identifies its operands.
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
  using Views = std::vector<engine::TensorView>;  // for `operands`, in their order
  using Call = std::function<void(engine::KernelContext& context, const Views& views)>;

  std::string op, model, shape;
  bool cuda = false;  // true if the operator has a kernel for CUDA devices
  double flops = 0;   // per call; 0: bound only by bytes
  double moved = 0;   // bytes of activations that it must read and write; 0: all of its operands
  std::vector<OperandSpec> operands;
  Call call;
  Call prepare = nullptr;  // called once before: results of forward that backward needs
  std::function<std::size_t(engine::DType dtype, int threads, engine::Device::Kind device,
                            engine::Products products)>
      scratch_bytes = nullptr;
  std::optional<CaseProduct> product{};  // plus, at most, a bias or its gradient
  Sampler sample = nullptr;  // replaces the whole result in float64 if that takes too long
};

// The number of images and texts in a batch.
struct BatchSizes {
  std::int64_t images = 32, texts = 8;
};
// Returns the operators of the models at their shapes, in a fixed order: entry i is the same
// operator for all sizes.
std::vector<KernelCase> kernel_cases(const BatchSizes& sizes);

// The parts of kernel_cases().
std::vector<KernelCase> dense_cases(const BatchSizes& sizes);
std::vector<KernelCase> convolution_cases(const BatchSizes& sizes);
std::vector<KernelCase> image_cases(
    const BatchSizes& sizes);  // normalization, pooling, activations
std::vector<KernelCase> text_cases(
    const BatchSizes& sizes);  // embedding, layer norm, gelu, attention
std::vector<KernelCase> training_cases(const BatchSizes& sizes);  // loss, optimizers
std::vector<KernelCase> window_cases(
    const BatchSizes& sizes);  // convolutions of any window, resizing

// Other sets of cases, with the same names and shapes as in tests/peers/torch_kernels.py.
std::vector<KernelCase> square_cases(
    const std::vector<std::int64_t>& sides);  // products of two square matrices
std::vector<KernelCase> resnet_convolution_cases(const BatchSizes& sizes);

// Returns e.g. "32x28x28x1".
std::string extents_text(const engine::Shape& shape);

}  // namespace tools
