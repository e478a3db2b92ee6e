// Factories of all layer kinds. Options, defaults and initial distributions are PyTorch's.
//
// Defined in engine/layers/general and engine/layers/spatial, or here, a file for each kind.
#pragma once

#include "engine/layers/layer.h"
#include "engine/ops/elementwise/activation.h"
#include "engine/ops/elementwise/gelu.h"
#include "engine/ops/loss/regression_loss.h"
#include "engine/ops/rotary/rotary.h"

namespace engine::layers {

struct DenseOptions {
  std::int64_t out = 0;
  bool bias = true;
  double deviation = 0;  // standard deviation of normally distributed initial weights, with biases
                         // 0 (GPT-2); 0: PyTorch's uniform distribution
};
LayerPtr dense(const DenseOptions& options);  // [..., in] -> [..., out]; parameters weight [out,
                                              // in], bias [out]
LayerPtr dense(std::int64_t out, bool bias = true);

// The initial values of a convolution's weight: PyTorch's default, uniform within 1 / sqrt(fan_in);
// or normal with variance 2 / fan_out (He et al., "Delving deep into rectifiers", 2015), as in
// torchvision's residual networks.
enum class ConvInit { kUniformFanIn, kNormalFanOut };

// Numbers along height and width; one number stands for both.
struct HeightWidth {
  std::int64_t height, width;

  HeightWidth(std::int64_t both) : height(both), width(both) {}  // NOLINT: implicit
  HeightWidth(std::int64_t h, std::int64_t w) : height(h), width(w) {}
  bool operator==(const HeightWidth&) const = default;
};
// Numbers of pixels at the four sides; one number stands for all.
struct Sides {
  std::int64_t top, left, bottom, right;

  Sides(std::int64_t all) : top(all), left(all), bottom(all), right(all) {}  // NOLINT: implicit
  Sides(std::int64_t h, std::int64_t w) : top(h), left(w), bottom(h), right(w) {}
  // NOLINTNEXTLINE(bugprone-easily-swappable-parameters): in the order of ONNX
  Sides(std::int64_t t, std::int64_t l, std::int64_t b, std::int64_t r)
      : top(t), left(l), bottom(b), right(r) {}
  bool operator==(const Sides&) const = default;
};

struct Conv2dOptions {
  std::int64_t out_channels = 0;
  HeightWidth kernel = 3, stride = 1;
  Sides padding = 0;
  bool bias = true;
  // The number of equal groups of input and output channels, each with its own weights.
  std::int64_t groups = 1;
  ConvInit init = ConvInit::kUniformFanIn;
  HeightWidth dilation = 1;
};
// Input [h, w, c]; parameters weight [out_channels, c / groups, kernel height, kernel width], bias.
LayerPtr conv2d(const Conv2dOptions& options);
// The two implementations that conv2d() selects from: for square kernels, equal strides and the
// same padding at all sides, without dilation; and for any other.
LayerPtr square_conv2d(const Conv2dOptions& options);
LayerPtr window_conv2d(const Conv2dOptions& options);

struct BatchNormOptions {
  double eps = 1e-5, momentum = 0.1;
  bool affine = true;  // false: without parameters
};
// Parameters weight, bias if `affine`; buffers running_mean, running_var, num_batches_tracked.
LayerPtr batch_norm2d(const BatchNormOptions& options = {});
// The same over the samples of all replicas: equal to batch_norm2d of one process on the whole
// batch, for any distribution of it, including replicas without samples. The running variance is
// unbiased by the count of all rows.
LayerPtr sync_batch_norm2d(const BatchNormOptions& options = {});

struct GroupNormOptions {
  std::int64_t groups = 0;
  double eps = 1e-5;
  bool affine = true;  // false: without parameters
};
// Normalizes over the positions and the channels of each of `groups` groups of a sample of [h, w,
// c]; parameters weight, bias if `affine`.
LayerPtr group_norm(const GroupNormOptions& options);

LayerPtr relu();
// On a CUDA device, memory() throws ModelError.
LayerPtr activation(const ops::Activation& function);
LayerPtr scale_shift(double scale, double shift);  // scale x + shift

struct PoolOptions {
  std::int64_t window = 2, stride = 0 /* 0: the window */, padding = 0;
  bool ceil_mode =
      false;  // rounds the number of windows up, not down; the last ones are cut at the border
};
LayerPtr max_pool2d(const PoolOptions& options);
LayerPtr average_pool2d(const PoolOptions& options);
LayerPtr global_average_pool();  // [h, w, c] -> [c]

LayerPtr flatten();  // [h, w, c] -> [c*h*w] in PyTorch's channel-first order
LayerPtr add();      // two inputs, expanded to a common shape as NumPy does
// Two inputs, expanded to a common shape as NumPy does.
LayerPtr multiply();
// Two or more inputs that differ only along an axis, one after another. A negative axis counts from
// the end.
LayerPtr concat(std::int64_t axis = -1);
// [h, w, c] -> [h, w, before + c + after], with zeros around the channels: the shortcut without
// parameters of residual networks (He et al., 2016, option A; Han et al., 2017).
LayerPtr pad_channels(std::int64_t before, std::int64_t after);
// [h, w, c] or [c] -> the same; channel g c / groups + i becomes channel i groups + g.
LayerPtr shuffle_channels(std::int64_t groups);
LayerPtr dropout(double rate = 0.5);

// Layers for sequences of tokens. The initial weights of both embeddings are normal with the
// standard deviation `deviation` (PyTorch's Embedding: 1).
LayerPtr embedding(std::int64_t vocabulary, std::int64_t width,
                   double deviation = 1);  // ids [t] of i32 -> [t, width]; weight
LayerPtr position_embedding(
    std::int64_t context,
    double deviation = 1);  // adds weight[:t] of [context, width] to [t, width]
// Over the last dimension; parameters weight and bias, without `affine` none.
LayerPtr layer_norm(double eps = 1e-5, bool affine = true);
LayerPtr rms_norm(double eps = 1e-6);  // over the last dimension; parameter weight

LayerPtr gelu(ops::GeluKind kind = ops::GeluKind::kExact);
struct AttentionOptions {
  // kv_heads: of keys and of values (grouped queries); 0: as many as heads
  std::int64_t heads = 0, kv_heads = 0, head_size = 0;  // head_size: required one; 0: any
  double dropout = 0;                                   // of the probabilities
};
// Input [t, (heads + 2 kv_heads) * size]: queries, keys and values side by side; output [t, heads *
// size]. It has no parameters: the projections are dense layers.
LayerPtr causal_self_attention(const AttentionOptions& options);
LayerPtr causal_self_attention(std::int64_t heads, double dropout = 0);
LayerPtr self_attention(const AttentionOptions& options);  // every position attends to all

struct MatmulOptions {
  bool transpose_second = false;
  double scale = 1;  // multiplies the product
};
// Inputs [..., m, k] and [..., k, n] (or [..., n, k] with transpose_second), output [..., m, n].
LayerPtr matmul(const MatmulOptions& options = {});
LayerPtr softmax();  // over the last dimension

struct RotaryOptions {
  std::int64_t heads = 0, kv_heads = 0 /* 0: as many as heads */;
  ops::RotaryFrequencies frequencies = {};
};
// Input and output [t, (heads + 2 kv_heads) * size]: turns the queries and keys of a projection by
// their positions, and leaves the values as they are.
LayerPtr rotary(const RotaryOptions& options);

struct HeadNormOptions {
  std::int64_t heads = 0, kv_heads = 0 /* 0: as many as heads */;
  double eps = 1e-6;
};
// Input and output as of rotary(): RMS normalization of each head of the queries and of the keys;
// parameters q_norm.weight, k_norm.weight [size].
LayerPtr head_rms_norm(const HeadNormOptions& options);

// Inputs: logits [classes] (or [positions..., classes]) and labels [] (or [positions...], in which
// extents of 1 may be left out) of i32. Output: the loss of each label; a label ops::kNoLabel has
// none. `label_smoothing` in [0, 1) is that of PyTorch's cross_entropy (Szegedy
// et al., 2016) and applies only to training: inference computes the plain loss.
LayerPtr softmax_cross_entropy(double label_smoothing = 0);

// Inputs: predictions [targets] and targets [targets]. Output: the loss of each sample, [], which
// is the mean over its targets; for kLogistic, whose predictions are logits of labels, the sum.
LayerPtr regression_loss(ops::RegressionLoss kind);

}  // namespace engine::layers
