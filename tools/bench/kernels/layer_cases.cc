// Lists the other operators of the models: normalization, pooling, activations, text.
#include <algorithm>

#include "engine/ops/attention/attention.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/elementwise/gelu.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/norm/batch_norm.h"
#include "engine/ops/norm/group_norm.h"
#include "engine/ops/norm/layer_norm.h"
#include "engine/ops/pool/pad_channels.h"
#include "engine/ops/pool/pool2d.h"
#include "tools/bench/kernels/case_parts.h"

namespace tools {
namespace {

using engine::KernelContext;
using engine::Shape;
using engine::Write;
using Views = KernelCase::Views;
namespace k = engine::ops;

constexpr bool kNormOnCuda = true, kElementwiseOnCuda = true, kPoolOnCuda = true,
               kTextOnCuda = true, kAttentionOnCuda = true;

void add_batch_norm(std::vector<KernelCase>& cases, const char* model, const Shape& x) {
  const std::int64_t channels = x[x.rank() - 1], rows = x.count() / channels;
  const OperandSpec sums{{2, channels}, Storage::kSums};
  const OperandSpec deviation = vector(channels, Use::kIn, 0.5);
  const auto add = [&](KernelCase made) {
    made.scratch_bytes = [=](engine::DType dtype, int threads, engine::Device::Kind device,
                             engine::Products) {
      return k::batch_norm_scratch_bytes(rows, channels, dtype, threads, device);
    };
    cases.push_back(std::move(made));
  };
  OperandSpec sums_out = sums;
  sums_out.use = Use::kOut;
  add(make_case("batch_norm_statistics", model, x, kNormOnCuda, {{x}, sums_out},
                [](KernelContext& c, const Views& v) { k::batch_norm_statistics(c, v[0], v[1]); }));
  add(make_case("batch_norm_normalize", model, x, kNormOnCuda,
                {{x}, vector(channels), deviation, vector(channels), vector(channels), out(x)},
                [](KernelContext& c, const Views& v) {
                  k::batch_norm_normalize(c, {.x = v[0],
                                              .mean = v[1],
                                              .inverse_std = v[2],
                                              .gamma = v[3],
                                              .beta = v[4],
                                              .relu = true,
                                              .y = v[5]});
                }));
  add(make_case(
      "batch_norm_backward_sums", model, x, kNormOnCuda,
      {{x}, {x}, {x}, vector(channels), deviation, sums_out}, [](KernelContext& c, const Views& v) {
        k::batch_norm_backward_sums(
            c, {.x = v[0], .y = v[1], .dy = v[2], .mean = v[3], .inverse_std = v[4], .sums = v[5]});
      }));
  add(make_case("batch_norm_backward_data", model, x, kNormOnCuda,
                {{x}, {x}, {x}, vector(channels), deviation, vector(channels), sums, out(x)},
                [rows](KernelContext& c, const Views& v) {
                  k::batch_norm_backward_data(c, {.x = v[0],
                                                  .y = v[1],
                                                  .dy = v[2],
                                                  .mean = v[3],
                                                  .inverse_std = v[4],
                                                  .gamma = v[5],
                                                  .sums = v[6],
                                                  .rows = rows,
                                                  .dx = v[7]});
                }));
}

void add_group_norm(std::vector<KernelCase>& cases, const char* model, const Shape& x,
                    std::int64_t groups) {
  const std::int64_t channels = x[x.rank() - 1];
  const OperandSpec statistics{{2, x[0], groups}, Storage::kVector, Use::kOut},
      known{{2, x[0], groups}, Storage::kVector, Use::kIn, 0.5};
  const auto add = [&](KernelCase made) {
    made.shape += " g" + std::to_string(groups);
    made.scratch_bytes = [x](engine::DType dtype, int, engine::Device::Kind device,
                             engine::Products) {
      return k::group_norm_scratch_bytes(x, dtype, device);
    };
    cases.push_back(std::move(made));
  };
  add(make_case("group_norm_forward", model, x, kNormOnCuda,
                {{x}, vector(channels), vector(channels), out(x), statistics},
                [groups](KernelContext& c, const Views& v) {
                  k::group_norm_forward(c, {.x = v[0],
                                            .gamma = v[1],
                                            .beta = v[2],
                                            .groups = groups,
                                            .eps = 1e-5,
                                            .y = v[3],
                                            .statistics = v[4]});
                }));
  add(make_case("group_norm_backward", model, x, kNormOnCuda,
                {{x},
                 vector(channels),
                 known,
                 {x},
                 vector(channels, Use::kOut),
                 vector(channels, Use::kOut),
                 out(x)},
                [](KernelContext& c, const Views& v) {
                  k::group_norm_backward(c, {.x = v[0],
                                             .gamma = v[1],
                                             .statistics = v[2],
                                             .dy = v[3],
                                             .dgamma = v[4],
                                             .dbeta = v[5],
                                             .dx = v[6]});
                }));
}

void add_max_pool(std::vector<KernelCase>& cases, const char* model, std::int64_t n,
                  const k::Pool2dGeometry& g) {
  const Shape x{n, g.in_h, g.in_w, g.channels}, y{n, g.out_h(), g.out_w(), g.channels};
  const OperandSpec argmax{y, Storage::kByte, Use::kOut}, known{y, Storage::kByte, Use::kPrepared};
  cases.push_back(make_case("max_pool2d_forward", model, x, kPoolOnCuda, {{x}, out(y), argmax},
                            [g](KernelContext& c, const Views& v) {
                              k::max_pool2d_forward(
                                  c, {.geometry = g, .x = v[0], .y = v[1], .argmax = v[2]});
                            }));
  KernelCase backward = make_case(
      "max_pool2d_backward", model, x, kPoolOnCuda, {{y}, known, out(x), {x}, {y}},
      [g](KernelContext& c, const Views& v) {
        k::max_pool2d_backward(
            c, {.geometry = g, .dy = v[0], .argmax = v[1], .dx = v[2], .write = Write::kOverwrite});
      });
  backward.operands[3].use = backward.operands[4].use = Use::kSetup;
  backward.prepare = [g](KernelContext& c, const Views& v) {
    k::max_pool2d_forward(c, {.geometry = g, .x = v[3], .y = v[4], .argmax = v[1]});
  };
  cases.push_back(std::move(backward));
}

void add_attention(std::vector<KernelCase>& cases, const char* model, std::int64_t n,
                   std::int64_t t, std::int64_t heads, std::int64_t width) {
  const Shape qkv{n, t, 3 * width}, y{n, t, width}, lse{n, heads, t};
  const auto add = [&](KernelCase made, double products) {
    made.shape = extents_text(y) + " h" + std::to_string(heads);
    // Half of each t x t product, which is what causal attention needs.
    made.flops = products * static_cast<double>(n * t * t * width);
    made.scratch_bytes = [=](engine::DType dtype, int threads, engine::Device::Kind device,
                             engine::Products type) {
      return k::attention_scratch_bytes({n, t, width, heads, dtype, threads, device, type});
    };
    cases.push_back(std::move(made));
  };
  add(make_case("causal_attention_forward", model, y, kAttentionOnCuda,
                {{qkv}, out(y), {lse, Storage::kVector, Use::kOut}},
                [heads](KernelContext& c, const Views& v) {
                  k::attention_forward(c, {.qkv = v[0], .heads = heads, .y = v[1], .lse = v[2]});
                }),
      2);
  KernelCase backward = make_case(
      "causal_attention_backward", model, y, kAttentionOnCuda,
      {{qkv}, {y}, {lse, Storage::kVector}, {y}, out(qkv)},
      [heads](KernelContext& c, const Views& v) {
        k::attention_backward(
            c, {.qkv = v[0], .heads = heads, .y = v[1], .lse = v[2], .dy = v[3], .dqkv = v[4]});
      });
  backward.operands[1].use = backward.operands[2].use = Use::kPrepared;
  backward.prepare = [heads](KernelContext& c, const Views& v) {
    k::attention_forward(c, {.qkv = v[0], .heads = heads, .y = v[1], .lse = v[2]});
  };
  add(std::move(backward), 5);
}

void add_text(std::vector<KernelCase>& cases, const char* model, std::int64_t n, std::int64_t t,
              std::int64_t width, std::int64_t vocabulary) {
  const std::size_t first = cases.size();
  const Shape x{n, t, width}, wide{n, t, 4 * width}, table{vocabulary, width};
  const OperandSpec tokens{{n, t}, Storage::kIndex, Use::kIn, 0, static_cast<double>(vocabulary)};
  const OperandSpec statistics{{2, n * t}, Storage::kVector, Use::kOut};
  OperandSpec known = statistics;
  known.use = Use::kIn;
  known.low = 0.5;
  cases.push_back(make_case("embedding_forward", model, x, kTextOnCuda, {tokens, {table}, out(x)},
                            [](KernelContext& c, const Views& v) {
                              k::embedding_forward(c, {.tokens = v[0], .table = v[1], .y = v[2]});
                            }));
  cases.back().moved = 2 * static_cast<double>(x.count());  // excludes most of the table
  cases.push_back(make_case(
      "embedding_backward", model, x, kTextOnCuda,
      {tokens, {x}, {table, Storage::kVector, Use::kOut}}, [](KernelContext& c, const Views& v) {
        k::embedding_backward(
            c, {.tokens = v[0], .dy = v[1], .dtable = v[2], .write = Write::kOverwrite});
      }));
  cases.push_back(make_case(
      "layer_norm_forward", model, x, kTextOnCuda,
      {{x}, vector(width), vector(width), out(x), statistics},
      [](KernelContext& c, const Views& v) {
        k::layer_norm_forward(
            c,
            {.x = v[0], .gamma = v[1], .beta = v[2], .eps = 1e-5, .y = v[3], .statistics = v[4]});
      }));
  cases.push_back(
      make_case("layer_norm_backward_data", model, x, kTextOnCuda,
                {{x}, vector(width), known, {x}, out(x)}, [](KernelContext& c, const Views& v) {
                  k::layer_norm_backward_data(
                      c, {.x = v[0], .gamma = v[1], .statistics = v[2], .dy = v[3], .dx = v[4]});
                }));
  cases.push_back(make_case(
      "layer_norm_backward_parameters", model, x, kTextOnCuda,
      {{x}, known, {x}, vector(width, Use::kOut), vector(width, Use::kOut)},
      [](KernelContext& c, const Views& v) {
        k::layer_norm_backward_parameters(
            c, {.x = v[0], .statistics = v[1], .dy = v[2], .dgamma = v[3], .dbeta = v[4]});
      }));
  cases.push_back(make_case("gelu_forward", model, wide, kTextOnCuda, {{wide}, out(wide)},
                            [](KernelContext& c, const Views& v) {
                              k::gelu_forward(c, v[0], k::GeluKind::kTanh, v[1]);
                            }));
  cases.push_back(make_case("gelu_backward", model, wide, kTextOnCuda, {{wide}, {wide}, out(wide)},
                            [](KernelContext& c, const Views& v) {
                              k::gelu_backward(c, v[0], v[1], k::GeluKind::kTanh, v[2],
                                               Write::kOverwrite);
                            }));
  for (std::size_t i = first; i < cases.size(); ++i)
    cases[i].scratch_bytes = [=](engine::DType, int, engine::Device::Kind device,
                                 engine::Products) {
      return std::max(k::embedding_scratch_bytes(n * t, vocabulary, device),
                      k::layer_norm_scratch_bytes(width, device));
    };
}

}  // namespace

std::vector<KernelCase> image_cases(const BatchSizes& sizes) {
  std::vector<KernelCase> cases;
  const std::int64_t n = sizes.images;
  for (const auto& [model, side, channels] :
       {std::tuple{"convnet", 28, 16}, {"resnet18-cifar", 32, 64}, {"resnet18-cifar", 4, 512}})
    add_batch_norm(cases, model, {n, side, side, channels});
  // Replaces batch normalization, with the groups of its authors.
  add_group_norm(cases, "convnet", {n, 28, 28, 16}, 8);
  add_group_norm(cases, "resnet18-cifar", {n, 32, 32, 64}, 32);
  add_max_pool(cases, "convnet", n, {.in_h = 28, .in_w = 28, .channels = 16});
  add_max_pool(cases, "resnet50", n,
               {.in_h = 112, .in_w = 112, .channels = 64, .window = 3, .stride = 2, .padding = 1});
  const Shape x{n, 32, 32, 64}, last{n, 4, 4, 512}, mean{n, 512};
  cases.push_back(make_case(
      "global_average_pool_forward", "resnet18-cifar", last, kPoolOnCuda, {{last}, out(mean)},
      [](KernelContext& c, const Views& v) { k::global_average_pool_forward(c, v[0], v[1]); }));
  cases.push_back(make_case("global_average_pool_backward", "resnet18-cifar", last, kPoolOnCuda,
                            {{mean}, out(last)}, [](KernelContext& c, const Views& v) {
                              k::global_average_pool_backward(c, v[0], v[1], Write::kOverwrite);
                            }));
  cases.push_back(
      make_case("relu_forward", "resnet18-cifar", x, kElementwiseOnCuda, {{x}, out(x)},
                [](KernelContext& c, const Views& v) { k::relu_forward(c, v[0], v[1]); }));
  cases.push_back(make_case("relu_backward", "resnet18-cifar", x, kElementwiseOnCuda,
                            {{x}, {x}, out(x)}, [](KernelContext& c, const Views& v) {
                              k::relu_backward(c, v[0], v[1], v[2], Write::kOverwrite);
                            }));
  cases.push_back(make_case(
      "add_forward", "resnet18-cifar", x, kElementwiseOnCuda, {{x}, {x}, out(x)},
      [](KernelContext& c, const Views& v) { k::add_forward(c, v[0], v[1], true, v[2]); }));
  const Shape map{n, 7, 7, 32}, flat{n, std::int64_t{7} * 7 * 32};
  cases.push_back(make_case("nhwc_to_channel_first", "convnet", map, kElementwiseOnCuda,
                            {{map}, out(flat)}, [](KernelContext& c, const Views& v) {
                              k::nhwc_to_channel_first(c, v[0], v[1], Write::kOverwrite);
                            }));
  const Shape narrow{n, 16, 16, 16}, wide{n, 16, 16, 32};
  cases.push_back(make_case("pad_channels_forward", "resnet20-cifar", narrow, true,
                            {{narrow}, out(wide)}, [](KernelContext& c, const Views& v) {
                              k::pad_channels_forward(c, {.before = 8, .x = v[0], .y = v[1]});
                            }));
  cases.push_back(
      make_case("pad_channels_backward", "resnet20-cifar", narrow, true, {{wide}, out(narrow)},
                [](KernelContext& c, const Views& v) {
                  k::pad_channels_backward(
                      c, {.before = 8, .dy = v[0], .dx = v[1], .write = Write::kOverwrite});
                }));
  return cases;
}

std::vector<KernelCase> text_cases(const BatchSizes& sizes) {
  std::vector<KernelCase> cases;
  add_text(cases, "gpt-nano", sizes.texts, 64, 128, 65);
  add_text(cases, "gpt2", sizes.texts, 256, 768, 50257);
  add_attention(cases, "gpt-nano", sizes.texts, 64, 4, 128);
  add_attention(cases, "gpt-mini", sizes.texts, 128, 6, 192);
  add_attention(cases, "gpt2", sizes.texts, 256, 12, 768);
  return cases;
}

}  // namespace tools
